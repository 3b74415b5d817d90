package handler

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/release"
	"dispatch.example/dispatch/whitelist"
)

// scratch is what one request needs; a pool keeps them.
type scratch struct {
	in      inputs
	dec     decision
	body    []byte // of the request
	answer  []byte
	session []byte
	line    []byte // of the decision log
}

// route answers GET, HEAD and POST /route: read, decide, append the answer.
// Nothing on this path waits for anything but the request itself.
func (h *Handler) route(c echo.Context) (err error) {
	start := h.now()
	r := c.Request()
	var at traced
	h.tracing.begin(&at, r, start)
	if at.span != nil || h.log.Enabled(r.Context(), slog.LevelDebug) {
		c.SetRequest(r.WithContext(at.in(r.Context())))
	}
	err = errPanicked // unless what follows returns
	defer func() {
		if err != nil { // lines about it name the trace
			c.SetRequest(r.WithContext(at.in(r.Context())))
		}
		at.end(err, h.now)
	}()
	err = h.routed(c, &at, start)
	return err
}

// routed answers a request, whose start was taken before its place in a trace was.
func (h *Handler) routed(c echo.Context, at *traced, start time.Time) error {
	r := c.Request()
	h.cors.allow(r, c.Response().Header())
	snap := h.releases.Current()
	switch {
	case snap == nil:
		return errNoRelease
	case len(r.URL.RawQuery) > maxQuery:
		return errQueryTooLong
	case r.Method != http.MethodPost && hasBody(r):
		return errBodyOnGet
	}
	s := h.scratch.Get().(*scratch)
	s.dec.at, s.dec.snap, s.dec.req.Now = *at, snap, start
	err := h.answer(c, s)
	s.in.reset()
	s.dec = decision{}
	h.scratch.Put(s) // not after a panic: that one is left to the collector
	return err
}

func (h *Handler) answer(c echo.Context, s *scratch) error {
	r, snap, start := c.Request(), s.dec.snap, s.dec.req.Now
	s.in.readHeaders(r.Header)
	if h.sessions != nil {
		s.in.readSessionID(r.Header)
	}
	s.in.readQuery(r.URL.RawQuery)
	if r.Method == http.MethodPost {
		var err error
		if s.body, err = s.in.readBody(r, s.body); err != nil {
			return err
		}
	}
	app := appOf(snap, strings.TrimSpace(s.in.value[fApp]), r.Host)
	if app == nil {
		return errUnknownApp
	}
	count := h.metrics.of(snap, app)
	d := &s.dec
	d.app, d.id = app, [2]uint64{rand.Uint64(), rand.Uint64()}
	h.believe(s, count, r)
	key, mapped := h.recall(r, s)
	h.decide(s)
	life := s.render(r.Header)
	if mapped {
		h.remember(key, s, life)
	}

	header := c.Response().Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	header["X-Content-Type-Options"] = noSniff
	d.at.answered(d, header)
	_, err := c.Response().Write(s.answer)
	if err != nil {
		h.log.DebugContext(r.Context(), "answer not written", "err", err) // the client has gone
	}
	if h.decisions != nil {
		s.line = h.decisions.render.append(s.line[:0], d)
		h.decisions.add(s.line)
	}
	h.metrics.fellBack(r.Header)
	h.metrics.unusable(s.in.bad)
	h.metrics.answered.Inc()
	end := h.now()
	h.metrics.seconds.Observe(end.Sub(start).Seconds())
	if h.metrics.tally.tick(end) {
		h.sample.tidy(end)
	}
	h.metrics.tally.decided(count.cells, d.out)
	if h.sample.wants(d.id[0]) {
		h.sample.keep(d, end)
	}
	h.debug(c, http.StatusOK, "")
	return nil
}

// appOf is the app that the request names, or its host's, or the default one.
// A name that is wrong is not replaced by a guess.
func appOf(snap *release.Snapshot, key, host string) *release.Served {
	if key != "" {
		return snap.Apps[key]
	}
	if app := snap.Hosts[plainHost(host)]; app != nil {
		return app
	}
	return snap.Default
}

// plainHost is a Host header without port and trailing dot, in lower case.
func plainHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// believe moves into the decision's request what the app's identity rules let
// the sender say. Headers have no authority by their name: user ids (by default)
// and origin hints count only from a trusted proxy.
func (h *Handler) believe(s *scratch, count *appCounters, r *http.Request) {
	from := h.proxies.client(r)
	if from.bad {
		s.in.bad.note(badForwarded)
	}
	in, req, app := &s.in, &s.dec.req, s.dec.app
	var why whitelist.Absence
	who := app.App.Identity
	if req.Device, why = identify(app.IDs, in.value[fDevice], from.trusted || who.DeviceFrom() == release.FromAnyone); why != whitelist.Present {
		count.device[why].Inc()
	}
	if req.User, why = identify(app.IDs, in.value[fUser], from.trusted || who.UserFrom() == release.FromAnyone); why != whitelist.Present {
		count.user[why].Inc()
	}
	if hint := in.value[fHint]; hint != "" {
		if from.trusted {
			req.Hint = hint
		} else {
			in.bad.note(badHint)
		}
	}
	req.Addr, req.AddrSource = from.addr, from.source
	req.AppVersion, req.Platform, req.Channel = in.value[fVersion], in.value[fPlatform], in.value[fChannel]
	req.Carrier, req.Locale, req.Attrs = in.value[fCarrier], in.value[fLocale], in.attrs
}

// identify is the normal form of an id, or why there is none.
func identify(ids *whitelist.Normalizer, raw string, believed bool) (string, whitelist.Absence) {
	id, why := ids.Normalize(raw)
	if why == whitelist.Present && !believed {
		return "", untrusted
	}
	return id, why
}

func (h *Handler) decide(s *scratch) {
	d := &s.dec
	var notes policy.Notes
	if token := s.in.value[fSession]; token != "" {
		d.req.Session, notes = d.app.Table.OpenSession(token, &d.req)
	}
	d.out = d.app.Table.Decide(&d.req)
	d.out.Notes |= notes
	for _, kind := range noteKinds {
		if kind.note == policy.BadVersion && d.req.AppVersion == "" {
			continue // none was sent; that is not a bad one
		}
		if d.out.Notes&kind.note != 0 {
			s.in.bad.note(kind.bad)
		}
	}
}

// noteKinds are the notes of a walk that count as inputs nobody could use.
var noteKinds = [...]struct {
	note policy.Notes
	bad  badInput
}{
	{policy.BadVersion, badVersion},
	{policy.BadSession, badSession},
	{policy.StaleSession, badSessionStale},
}

// render puts the answer together: what was rendered and signed when the
// release was compiled, then ttl and session. It returns what is left of the session.
func (s *scratch) render(header http.Header) time.Duration {
	d := &s.dec
	from := &d.app.Fallback
	if d.out.Region >= 0 {
		from = &d.app.Answer[d.out.Region][d.out.Endpoint]
	}
	session, left := d.app.Table.AppendSession(s.session[:0], d.out, &d.req, d.app.Life)
	var known string
	if v := header[recordKeys]; len(v) > 0 {
		known = v[0]
	}
	s.session = session
	b := append(s.answer[:0], from.Body(known)...)
	b = append(b, `,"ttl":`...)
	b = strconv.AppendInt(b, int64(s.ttl(left)/time.Second), 10)
	b = append(b, `,"session":"`...)
	b = append(b, session...)
	s.answer = append(b, `"}`...)
	return left
}

func (s *scratch) ttl(left time.Duration) time.Duration {
	req := &s.dec.req
	switch {
	case req.Device != "":
		return policy.TTL(left, req.Device)
	case req.User != "":
		return policy.TTL(left, req.User)
	}
	var room [64]byte
	addr, _ := req.Addr.AppendText(room[:0]) // an address without zone always has text
	return policy.TTL(left, string(addr))
}

// debug writes one line a request when somebody turned that on. It names no id.
func (h *Handler) debug(c echo.Context, status int, code string) {
	ctx := c.Request().Context()
	if !h.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	h.log.DebugContext(ctx, "request", "method", c.Request().Method, "route", c.Path(), "status", status, "code", code)
}
