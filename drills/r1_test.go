package drills

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

// limitR1 is how long callers may go on calling an instance that is dead.
const limitR1 = 10 * time.Second

// shot is one run of R1.
type shot struct {
	detection time.Duration // from its death to the last call sent there
	late      int           // calls sent there after limitR1
	after     []time.Duration
	calls     int // all, from its death on
	failed    int
}

// R1, C01: an instance dies by kill -9 or falls silent; 10 s later nobody sends
// anything there, although its lease lives for up to 15.3 s.
func TestR1DeadInstancesAreLeft(t *testing.T) {
	t.Run("kill -9", func(t *testing.T) {
		t.Parallel()
		drillR1(t, "kill -9", killed)
	})
	t.Run("silence", func(t *testing.T) {
		t.Parallel()
		if !namespaces(t) {
			return
		}
		drillR1(t, "silence", silenced)
	})
}

// Nobody learns how calls end: then the lease alone ends them, too late.
func TestR1NeedsOutcomes(t *testing.T) {
	if !*full {
		return // what it shows takes 16 s and does not change from commit to commit
	}
	s := killed(t, 0, true)
	figure(t, "R1", "outcomes told to nobody: %d requests after 10 s, the last one %s after kill -9", s.late, short(s.detection))
	if s.late == 0 {
		t.Error("R1 passes although outcomes are told to nobody: it shows nothing")
	}
}

// drillR1 does so many runs, some at a time, and prints one line.
func drillR1(t *testing.T, kind string, run func(t *testing.T, n int, blind bool) shot) {
	runs := pick(3, 20)
	shots := make([]shot, runs)
	slots := make(chan struct{}, 3) // each is seven processes
	t.Run("runs", func(t *testing.T) {
		var all sync.WaitGroup
		defer all.Wait()
		for n := range runs {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				t.Run(strconv.Itoa(n), func(t *testing.T) { shots[n] = run(t, n, false) })
			})
		}
	})
	var took []time.Duration
	var rows [][]string
	late, calls, failed := 0, 0, 0
	for n, s := range shots {
		took = append(took, s.detection)
		late, calls, failed = late+s.late, calls+s.calls, failed+s.failed
		for _, d := range s.after {
			rows = append(rows, []string{kind, strconv.Itoa(n), micros(d)})
		}
	}
	keep(t, "R1-"+strings.ReplaceAll(kind, " ", ""), []string{"kind", "run", "sent_us_after_death"}, rows)
	figure(t, "R1", "%s: %d runs, %d requests after 10 s, detection %s; %d of %d calls failed meanwhile", kind, runs, late, spread(took), failed, calls)
	if late > 0 {
		t.Errorf("%d requests were sent to a dead instance more than %s after its death", late, limitR1)
	}
	if calls == 0 {
		t.Error("nobody called")
	}
}

// instances of the service, of which one dies.
const instancesR1 = 5

// killed is a run on loopback: the first instance is killed.
func killed(t *testing.T, n int, blind bool) shot {
	registry := "consul://" + testenv.Consul(t)
	service := fmt.Sprintf("r1-kill-%d-%v", n, blind)
	var servers []*testenv.Control
	var dead []string
	for i := range instancesR1 {
		p := &serverPart{Service: service, Listen: freeAddr(t), RPC: freeAddr(t), Registry: registry, Version: "v1"}
		servers = append(servers, launch(t, fmt.Sprintf("server-%d", i), part{Server: p}))
		if i == 0 {
			dead = []string{p.Listen, p.RPC}
		}
	}
	awaitReady(t, servers...)
	return watchDeath(t, service, registry, watched{dead: dead, blind: blind, die: servers[0].Kill})
}

// silenced is a run in a network of its own: the first instance is cut off.
func silenced(t *testing.T, n int, blind bool) shot {
	network := newNetwork(t, instancesR1)
	relay(t, network.listen(t, 8500), testenv.Consul(t))
	registry := "consul://" + hub + ":8500"
	service := fmt.Sprintf("r1-silence-%d-%v", n, blind)
	var servers []*testenv.Control
	for i := 1; i <= instancesR1; i++ {
		p := &serverPart{Service: service, Listen: network.host(i) + ":8080", RPC: network.host(i) + ":8081", Registry: registry, Version: "v1"}
		servers = append(servers, launch(t, fmt.Sprintf("server-%d", i), part{Server: p}, network.inside(i)...))
	}
	awaitReady(t, servers...)
	return watchDeath(t, service, registry, watched{dead: []string{network.host(1) + ":8080", network.host(1) + ":8081"}, blind: blind,
		inside: network.inside(0), die: func() error { network.cut(t, 1); return nil }})
}

// watched is an instance that will die, seen by callers.
type watched struct {
	dead   []string // its addresses
	blind  bool
	inside []string // where the callers are
	die    func() error
}

// watchDeath lets two callers call, one by HTTP and one by gRPC, and looks at what
// they did after the death.
func watchDeath(t *testing.T, service, registry string, w watched) (s shot) {
	var callers []*testenv.Control
	var files []string
	for _, rpc := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "samples")
		p := &callerPart{Service: service, Registry: registry, RPC: rpc, Rate: pick(50, 100), Blind: w.blind, Samples: file}
		if rpc {
			p.Service += rpcSuffix
		}
		callers, files = append(callers, launch(t, "caller", part{Caller: p}, w.inside...)), append(files, file)
	}
	awaitReady(t, callers...)
	pass(t, time.Second)
	death := time.Now()
	must(t, w.die())
	pass(t, pick(limitR1+time.Second, 45*time.Second)) // in full also when it is due back
	for i, c := range callers {
		must(t, c.Stop(10*time.Second))
		s.read(t, readEvents(t, files[i]), death, w.dead)
	}
	return s
}

// read adds what one caller wrote.
func (s *shot) read(t *testing.T, all []event, death time.Time, dead []string) {
	t.Helper()
	before := 0
	for _, ev := range all {
		after := ev.At.Sub(death)
		switch {
		case ev.Kind == "call" && after >= 0 && ev.Outcome != "ended":
			s.calls++
			if ev.Outcome != served {
				s.failed++
			}
		case ev.Kind == "pick" && (ev.Address == dead[0] || ev.Address == dead[1]):
			if after < 0 {
				before++
				continue
			}
			s.after = append(s.after, after)
			s.detection = max(s.detection, after)
			if after > limitR1 {
				s.late++
			}
		}
	}
	if before == 0 {
		t.Error("nobody called the instance while it lived")
	}
}
