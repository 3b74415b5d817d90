package probe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a prober whose shots come from a script: a digit a round for each host.
// What the script ends with goes on.
func scripted(t *testing.T, script map[string]string) *Prober {
	t.Helper()
	names := []string{}
	for name := range script {
		names = append(names, name)
	}
	p, err := New(Options{Prober: "control-1", Hosts: func() []string { return names }, DNS: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	rounds := map[string]int{}
	turns := make(chan struct{}, 1)
	turns <- struct{}{}
	p.shoot = func(_ context.Context, host string) Shot {
		<-turns
		defer func() { turns <- struct{}{} }()
		n := min(rounds[host], len(script[host])-1)
		rounds[host]++
		if script[host][n] == '1' {
			return Shot{OK: true}
		}
		return Shot{Problem: "connect: refused"}
	}
	return p
}

// steady are hosts that always answer, so that one that does not is a minority.
func steady(script map[string]string) map[string]string {
	for i := range 3 * len(script) {
		script[fmt.Sprintf("steady-%d.bank.example", i)] = "1"
	}
	return script
}

func (p *Prober) stateOf(host string) State {
	for _, s := range p.States() {
		if s.Host == host {
			return s
		}
	}
	return State{}
}

// e66: up after two, down after three, and what comes and goes flips nothing.
func TestAStateChangesAfterARow(t *testing.T) {
	t.Parallel()
	for shots, want := range map[string]string{
		"1":            Unknown,
		"11":           Up,
		"0":            Unknown,
		"00":           Unknown,
		"000":          Down,
		"110101010101": Up,
		"000101010101": Down,
		"0101010101":   Unknown,
		"1100":         Up,
		"11000":        Down,
		"110010010":    Up,
		"0001":         Down,
		"00011":        Up,
		"00010":        Down,
	} {
		t.Run(shots, func(t *testing.T) {
			p := scripted(t, steady(map[string]string{"a.bank.example": shots}))
			for range shots {
				p.round(t.Context())
			}
			s := p.stateOf("a.bank.example")
			if s.State != want || len(s.Recent) != min(len(shots), 5) || s.Recent[0].OK != strings.HasSuffix(shots, "1") {
				t.Errorf("it is %s, want %s; recent %+v", s.State, want, s.Recent)
			}
		})
	}
}

func TestAStateSaysSinceWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := scripted(t, steady(map[string]string{"a.bank.example": "110001"}))
		ctx, cancel := context.WithCancel(t.Context())
		rounds := make(chan []State, 10)
		p.opt.Report = func(_ context.Context, s []State) { rounds <- s }
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		var down time.Time
		for n := range 7 {
			began := time.Now()
			<-rounds
			if wait := time.Since(began); n > 0 && (wait < 3500*time.Millisecond || wait > 6500*time.Millisecond) {
				t.Errorf("round %d comes after %s, want 5 s ± 30 %%", n, wait)
			}
			if n == 4 {
				down = time.Now()
			}
		}
		s := p.stateOf("a.bank.example")
		if s.State != Up || !s.Since.Equal(s.Last) {
			t.Errorf("it is %s since %s, last probed %s", s.State, s.Since, s.Last)
		}
		if got := s.Recent[2].At; !got.Equal(down) || s.Recent[2].OK || s.Recent[2].Problem == "" {
			t.Errorf("the third failure is at %s, want %s: %+v", got, down, s.Recent)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// P22: when most fail at once the prober is suspected, and nothing becomes down.
func TestP22MostFailingAtOnceChangesNothing(t *testing.T) {
	t.Parallel()
	script := map[string]string{}
	for i := range 6 {
		script[fmt.Sprintf("h%d.bank.example", i)] = "11" + []string{"1", "1", "0", "0", "0", "0"}[i] + "000000" + "11"
	}
	p := scripted(t, script)
	for range 2 {
		p.round(t.Context())
	}
	for range 7 {
		p.round(t.Context())
		for _, s := range p.States() {
			if s.State != Up {
				t.Fatalf("%s is %s", s.Host, s.State)
			}
		}
		if !p.Distrusted() {
			t.Error("the prober is trusted while most fail")
		}
	}
	if s := p.stateOf("h5.bank.example"); s.Recent[0].OK || !s.Last.Equal(s.Recent[0].At) {
		t.Errorf("what was seen is not kept: %+v", s)
	}
	p.round(t.Context())
	if p.Distrusted() {
		t.Error("all answer, and the prober is still distrusted")
	}

	// A prober that starts without a network learns nothing; one that has one learns
	// that half of the register is not there yet.
	blind := scripted(t, map[string]string{"a.bank.example": "0", "b.bank.example": "0"})
	half := scripted(t, map[string]string{"a.bank.example": "0", "b.bank.example": "0", "c.bank.example": "1"})
	for range 9 {
		blind.round(t.Context())
		half.round(t.Context())
	}
	if s := blind.stateOf("a.bank.example"); s.State != Unknown || !blind.Distrusted() {
		t.Errorf("without a network a host is %s", s.State)
	}
	if s := half.stateOf("a.bank.example"); s.State != Down || half.Distrusted() {
		t.Errorf("a host that never answered is %s", s.State)
	}
}

func TestHostsThatNobodyNamesAreForgotten(t *testing.T) {
	t.Parallel()
	p := scripted(t, map[string]string{"a.bank.example": "1", "b.bank.example": "1"})
	p.round(t.Context())
	p.opt.Hosts = func() []string { return []string{"b.bank.example", "b.bank.example"} }
	p.round(t.Context())
	if states := p.States(); len(states) != 1 || states[0].Host != "b.bank.example" || states[0].State != Up {
		t.Errorf("states are %+v", states)
	}
}

func TestAtMostSixteenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Options{Prober: "control-1", DNS: "127.0.0.1", Hosts: func() []string {
			var names []string
			for i := range 100 {
				names = append(names, fmt.Sprintf("h%d.bank.example", i))
			}
			return names
		}})
		if err != nil {
			t.Fatal(err)
		}
		under := make(chan struct{}, atOnce)
		p.shoot = func(ctx context.Context, _ string) Shot {
			select {
			case under <- struct{}{}:
			default:
				t.Error("a seventeenth probe")
			}
			<-ctx.Done()
			<-under
			return Shot{Problem: problemOf(ctx.Err())}
		}
		began := time.Now()
		p.round(t.Context())
		if took := time.Since(began); took != 7*Timeout {
			t.Errorf("a round of 100 that all time out takes %s, want 7 × %s", took, Timeout)
		}
		if !slices.ContainsFunc(p.States(), func(s State) bool { return strings.HasPrefix(s.Problem, "timeout: ") }) {
			t.Errorf("states are %+v", p.States()[0])
		}
	})
}
