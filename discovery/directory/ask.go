package directory

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/fault"
)

// The outcomes of an Ask, for metrics.
const (
	askedFull    = "full"
	askedNews    = "changed"
	askedNothing = "unchanged"
	askedWrong   = "refused"
	askedGone    = "left"
)

// tables answers an Ask as soon as there is news for it, or when it has waited.
func (s *Server) tables(w http.ResponseWriter, r *http.Request) error {
	outcome, err := s.answerAsk(w, r)
	s.d.metrics.asks.WithLabelValues(outcome).Inc()
	return err
}

func (s *Server) answerAsk(w http.ResponseWriter, r *http.Request) (outcome string, err error) {
	ask, err := s.ask(w, r)
	if err != nil {
		return askedWrong, err
	}
	s.d.metrics.waiting.Inc()
	defer s.d.metrics.waiting.Dec()
	end := time.NewTimer(wire.HoldFor)
	defer end.Stop()
	select {
	case <-s.d.complete:
	case <-end.C: // it gets what there is, and who is missing
		return s.write(w, ask)
	case <-r.Context().Done():
		return askedGone, nil
	case <-s.stopped:
		return askedWrong, stopping()
	}
	s.d.calls.note(Call{From: ask.Service, Env: ask.Home.Env}, ask.Services, s.d.tables.known)
	waiter := s.d.tables.join(ask.Services)
	defer s.d.tables.leave(waiter)
	for {
		newest, published := s.board.Current()
		if s.d.tables.since(ask.Epoch, ask.Version, ask.Services).news() || newest.Number > ask.Number {
			return s.write(w, ask)
		}
		select {
		case <-waiter.news:
		case <-published:
		case <-end.C:
			return s.write(w, ask)
		case <-s.stopped:
			return s.write(w, ask)
		case <-r.Context().Done():
			return askedGone, nil // nobody listens any more
		}
	}
}

// ask reads and checks a question.
func (s *Server) ask(w http.ResponseWriter, r *http.Request) (ask wire.Ask, err error) {
	if err := read(w, r, maxAsk, &ask); err != nil {
		return ask, err
	}
	var p fault.Problems
	if !isPlain(ask.Caller) {
		p.Addf("caller", "is required: 1 to %d printable bytes", maxName)
	}
	if ask.Service != "" && !isPlain(ask.Service) || len(ask.Home.Env) > maxName {
		p.Addf("service", "it or home.env has more than %d bytes or cannot be printed", maxName)
	}
	if ask.Home.Region == "" {
		p.Addf("home.region", "is required: a control node answers for one region")
	}
	if len(ask.Services) > maxAsked {
		p.Addf("services", "there are %d, at most %d may be named; name none to get all", len(ask.Services), maxAsked)
	}
	for i, name := range ask.Services {
		if !isPlain(name) {
			p.Addf(fmt.Sprintf("services[%d]", i), "is no name of a service")
		}
	}
	if err := p.Err("bad_ask", "the question cannot be answered"); err != nil {
		return ask, err
	}
	if own := s.d.opt.Region; ask.Home.Region != own {
		return ask, fault.New(fault.Conflict, "other_region", "this control node keeps the services of %s, not of %s", own, ask.Home.Region).
			WithHint("give callers the control nodes of their own region; other regions are reached through their gateways")
	}
	s.hear(ask.Number)
	return ask, nil
}

// hear notes the number of rules that a caller follows.
func (s *Server) hear(number uint64) {
	newest, _ := s.board.Current()
	for number <= newest.Number+maxAhead {
		if before := s.heard.Load(); before >= number || s.heard.CompareAndSwap(before, number) {
			return
		}
	}
}

// write answers with what there is now.
func (s *Server) write(w http.ResponseWriter, ask wire.Ask) (outcome string, err error) {
	a := s.d.tables.since(ask.Epoch, ask.Version, ask.Services)
	if !s.board.Read() {
		a.head.Unread = true
	}
	var newest []byte
	if release, _ := s.board.Current(); release.Number > ask.Number {
		newest = s.newest.encode(release)
	}
	outcome = askedNothing
	switch {
	case a.head.Full:
		outcome = askedFull
	case a.services != nil || newest != nil:
		outcome = askedNews
	}
	parts, length := a.parts(newest), 0
	for _, part := range parts {
		length += len(part)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(length))
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			break // whoever has gone asks again
		}
	}
	return outcome, nil
}
