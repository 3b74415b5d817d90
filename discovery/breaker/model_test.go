package breaker

import (
	"math/rand/v2"
	"testing"
	"time"
)

// small settings reach every state within a few hundred steps.
var small = Settings{
	Slow: 800 * ms, SlowShare: 0.2, SlowFor: time.Second, SlowCalls: 6,
	FailedShare: 0.5, FailedIn: 500 * ms, FailedCalls: 5,
	OpenFor: 700 * ms, Probes: 3, ProbeFor: 300 * ms,
}

// model is what the package comment says, told slowly: it keeps every call and looks
// through all of them.
type model struct {
	opt    Settings
	state  State // Open also when the 30 s are over
	round  int   // one more at each change of state
	until  time.Duration
	calls  []ended // of this round
	judged int     // calls whose tenth's end has been judged
	probes []*try  // of this round
	seen   map[string]int
}

type ended struct {
	t            time.Duration
	failed, slow bool
}

// try is a call that was let through.
type try struct {
	permit   Permit
	round    int
	probe    bool
	deadline time.Duration
	over     string // "", "passed", "back"
}

func (m *model) move(to State, t time.Duration, why string) {
	m.state, m.until, m.round, m.calls, m.probes, m.judged = to, t+m.opt.OpenFor, m.round+1, nil, nil, 0
	m.seen[why]++
}

// look opens at the end of the last call's tenth, if that is over and too slow.
func (m *model) look(t time.Duration) {
	if m.state != Closed || m.judged == len(m.calls) {
		return
	}
	tenth := m.opt.SlowFor / 10
	at := m.calls[len(m.calls)-1].t / tenth
	if t < (at+1)*tenth {
		return
	}
	m.judged = len(m.calls)
	if m.slowSince(at, tenth) {
		m.move(Open, (at+1)*tenth, "slow")
	}
}

// slowSince looks at the ten tenths up to one, and for a first slow call that is far
// enough back.
func (m *model) slowSince(at, tenth time.Duration) bool {
	in := func(from, to time.Duration) (calls, slow float64) {
		for _, c := range m.calls {
			if n := c.t / tenth; n >= from && n <= to {
				calls++
				if c.slow {
					slow++
				}
			}
		}
		return calls, slow
	}
	calls, slow := in(at-9, at)
	if int(calls) < m.opt.SlowCalls || slow/calls <= m.opt.SlowShare {
		return false
	}
	share := slow / calls
	for n := at - 9; n <= at; n++ {
		calls, slow := in(n, n)
		if calls*share >= 5 && slow/calls <= m.opt.SlowShare && slow < calls*share/10 {
			m.seen["a well tenth"]++
			return false
		}
	}
	first, last := none, none
	from, to, bad := 0, 0, 0 // places of the first and last slow call, and how many
	for i, c := range m.calls {
		if !c.slow {
			continue
		}
		anew := bad >= 5 && float64(bad)/float64(to-from+1)*float64(i-to-1) >= 5
		if anew {
			m.seen["a well run"]++
		}
		if first == none || c.t-last > m.opt.SlowFor || anew {
			first, from, bad = c.t, i, 0
		}
		last, to, bad = c.t, i, bad+1
	}
	return last-first >= m.opt.SlowFor-m.opt.SlowFor/20
}

func (m *model) allow(t time.Duration) (*try, bool) {
	m.look(t)
	switch {
	case m.state == Closed:
		return &try{round: m.round}, true
	case t < m.until:
		return nil, false
	}
	held := 0
	for _, p := range m.probes {
		if p.over == "passed" || p.over == "" && t < p.deadline {
			held++
		} else if p.over == "" {
			m.seen["expired"]++
		}
	}
	if held >= m.opt.Probes {
		return nil, false
	}
	p := &try{round: m.round, probe: true, deadline: t + m.opt.ProbeFor}
	m.probes = append(m.probes, p)
	return p, true
}

func (m *model) done(p *try, failed bool, took, t time.Duration) {
	m.look(t)
	slow := took > m.opt.Slow
	switch {
	case p.round != m.round:
		m.seen["late"]++
	case p.probe && (failed || slow):
		m.move(Open, t, "reopened")
	case p.probe:
		if p.over != "" || t >= p.deadline {
			return
		}
		p.over = "passed"
		passed := 0
		for _, one := range m.probes {
			if one.over == "passed" {
				passed++
			}
		}
		if passed == m.opt.Probes {
			m.move(Closed, 0, "closed")
		}
	default:
		m.calls = append(m.calls, ended{t, failed, slow})
		part, calls, bad := m.opt.FailedIn/50, 0, 0
		for _, c := range m.calls {
			if c.t/part > t/part-50 {
				calls++
				if c.failed {
					bad++
				}
			}
		}
		if calls >= m.opt.FailedCalls && float64(bad)/float64(calls) > m.opt.FailedShare {
			m.move(Open, t, "failed")
		}
	}
}

func (m *model) release(p *try) {
	if p.probe && p.over == "" && p.round == m.round {
		p.over = "back"
	}
}

func (m *model) stateAt(t time.Duration) (State, time.Duration) {
	m.look(t)
	if m.state == Open && t >= m.until {
		return HalfOpen, 0
	}
	return m.state, m.until
}

// compare does what data says to a Breaker and the model, two bytes a step.
func compare(t *testing.T, data []byte, seen map[string]int) {
	b, m := New(small), &model{opt: small, seen: seen}
	var now time.Duration
	var running []*try
	b.Allow(at(0)) // zero of the model's time
	for i := 0; i+1 < len(data); i += 2 {
		what, n := data[i]%8, data[i+1]
		switch {
		case n >= 250:
			now += time.Duration(n-249) * 150 * ms
		default:
			now += time.Duration(n%32) * ms
		}
		switch {
		case what < 3 || len(running) == 0:
			permit, ok := b.Allow(at(now))
			try, want := m.allow(now)
			if ok != want {
				t.Fatalf("step %d at %s: Allow is %v, want %v", i/2, now, ok, want)
			}
			if ok {
				try.permit = permit
				running = append(running, try)
			}
		default:
			k := int(n) % len(running)
			p := running[k]
			running[k] = running[len(running)-1]
			running = running[:len(running)-1]
			if what == 3 {
				b.Release(p.permit)
				m.release(p)
				break
			}
			took := 10 * ms
			if data[i]&8 != 0 {
				took = 900 * ms
			}
			failed := data[i]&48 == 48 || data[i]&64 != 0 && what > 5
			b.Done(p.permit, failed, took, at(now))
			m.done(p, failed, took, now)
		}
		got, until := b.State(at(now))
		want, ends := m.stateAt(now)
		if got != want || got == Open && !until.Equal(at(ends)) {
			t.Fatalf("step %d at %s: %s until %s, want %s until %s", i/2, now, got, until, want, at(ends))
		}
	}
}

// mixed is steps whose calls are mostly good, mostly slow or mostly failed for a while.
func mixed(r *rand.Rand, n int) []byte {
	data := make([]byte, 0, 2*n)
	mood, left := byte(0), 0
	dense := r.IntN(2) == 0
	for range n {
		if left == 0 {
			mood, left = []byte{0, 8, 8, 48, 64}[r.IntN(5)], 20+r.IntN(200)
		}
		left--
		step := byte(r.IntN(8))
		if r.IntN(20) > 0 {
			step |= mood
		}
		gap := byte(r.IntN(250))
		if dense {
			gap = gap&^31 | gap&1 // tenths that many calls end in
		}
		if r.IntN(100) == 0 {
			gap = byte(250 + r.IntN(6))
		}
		data = append(data, step, gap)
	}
	return data
}

func TestAgreesWithModel(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(300) {
		compare(t, mixed(rand.New(rand.NewPCG(seed, 1)), 1500), seen)
	}
	for _, what := range []string{"slow", "failed", "reopened", "closed", "expired", "late", "a well tenth", "a well run"} {
		if seen[what] < 20 {
			t.Errorf("%s was seen %d times: %v", what, seen[what], seen)
		}
	}
}

func FuzzBreaker(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(mixed(rand.New(rand.NewPCG(seed, 2)), 400))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		compare(t, data[:min(len(data), 4000)], map[string]int{})
	})
}
