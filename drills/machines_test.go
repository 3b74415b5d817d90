package drills

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

// leastR6 of all calls are served outside of the ten seconds after a machine stops.
const leastR6 = 0.999

// machine is one that is stopped and started again.
type machine struct {
	name  string
	stop  func()
	start func()
}

// R6, C06: every machine is stopped in turn, as a crash does: six instances, and in
// full the control node and three Consul servers too.
func TestR6MachinesStopInTurn(t *testing.T) {
	t.Parallel()
	const service = "r6"
	registry, others := registryR6(t)
	var machines []machine
	for i := range 6 {
		p := &serverPart{Service: service, Listen: freeAddr(t), RPC: freeAddr(t), Registry: registry, Version: "v1"}
		c := start(t, "instance-"+strconv.Itoa(i+1), part{Server: p})
		machines = append(machines, machine{c.Name, func() { must(t, c.Kill()) }, func() { must(t, c.Launch()) }})
	}
	machines = append(machines[:pick(2, 6)], others...)
	var reach *controlled
	if *full {
		n := startNode(t, registry)
		for _, name := range []string{service, service + rpcSuffix} {
			within(t, 20*time.Second, func() error { return n.listed(t, name) })
		}
		reach = n.reach()
		machines = append(machines, machine{"control", func() { must(t, n.Kill()) }, func() { must(t, n.Launch()) }})
	}
	var callers []*testenv.Control
	var files []string
	for _, rpc := range []bool{false, true} {
		p := &callerPart{Service: service, Registry: registry, RPC: rpc, Rate: pick(50, 100), Control: reach, Samples: filepath.Join(t.TempDir(), "samples")}
		if rpc {
			p.Service += rpcSuffix
		}
		callers, files = append(callers, start(t, "caller", part{Caller: p})), append(files, p.Samples)
	}
	pass(t, 2*time.Second)
	var stops []time.Time
	for _, m := range machines {
		stops = append(stops, time.Now())
		m.stop()
		pass(t, limitR1)
		m.start()
		pass(t, pick(time.Second, 8*time.Second))
	}
	var events []event
	for i, c := range callers {
		must(t, c.Stop(10*time.Second))
		events = append(events, readEvents(t, files[i])...)
	}
	judgeR6(t, machines, stops, events)
}

// share is how many calls of all were served.
type share struct{ served, all int }

func (s share) part() float64 { return float64(s.served) / float64(max(s.all, 1)) }

// judgeR6 compares calls outside and inside of the windows.
func judgeR6(t *testing.T, machines []machine, stops []time.Time, events []event) {
	var outside, inside share
	windows := make([]share, len(stops))
	outcomes := map[[2]string]int{} // by window and outcome
	for _, ev := range events {
		if ev.Kind != "call" || ev.Outcome == "ended" {
			continue
		}
		// The window is that of the last machine that was stopped before the call ended.
		at := len(stops) - 1
		for at >= 0 && ev.At.Add(ev.Took).Before(stops[at]) {
			at--
		}
		of, window := []*share{&outside}, "before"
		switch {
		case at >= 0 && ev.At.Before(stops[at].Add(limitR1)):
			of, window = []*share{&inside, &windows[at]}, machines[at].name
		case at >= 0:
			window = "after " + machines[at].name
		}
		outcomes[[2]string{window, ev.Outcome}]++
		for _, s := range of {
			s.all++
			if ev.Outcome == served {
				s.served++
			}
		}
	}
	var rows [][]string
	for key, n := range outcomes {
		rows = append(rows, []string{key[0], key[1], strconv.Itoa(n)})
	}
	slices.SortFunc(rows, slices.Compare)
	keep(t, "R6", []string{"window", "outcome", "calls"}, rows)
	worst := slices.MinFunc(windows, func(a, b share) int { return cmp.Compare(a.part(), b.part()) })
	figure(t, "R6", "%d machines stopped in turn: %.3f %% of %d calls served outside of 10 s (limit 99.9 %%), %.3f %% of %d inside, %.3f %% in the worst 10 s",
		len(stops), 100*outside.part(), outside.all, 100*inside.part(), inside.all, 100*worst.part())
	if outside.part() < leastR6 || outside.all == 0 {
		t.Errorf("%d of %d calls were served outside of the windows: %v", outside.served, outside.all, rows)
	}
}

// registryR6 is one Consul in small; in full three, which are machines too.
func registryR6(t *testing.T) (target string, machines []machine) {
	if !*full {
		return "consul://" + testenv.Consul(t), nil
	}
	target = "consul://"
	for i, a := range testenv.ConsulCluster(t, 3) {
		if i > 0 {
			target += ","
		}
		target += a.Addr
		machines = append(machines, machine{"consul-" + strconv.Itoa(i+1), func() { a.Stop(t) }, func() { a.Start(t) }})
	}
	return target, machines
}

// leaves are calls to an address after it was told to leave.
func leaves(events []event, address string, told time.Time) (last time.Duration) {
	for _, ev := range events {
		if ev.Kind == "pick" && ev.Address == address {
			last = max(last, ev.At.Sub(told))
		}
	}
	return last
}

// limitC23 is how soon callers know of an address that changed.
const limitC23 = 2 * time.Second

// C23: under load a service moves to other addresses, one instance after the other,
// and grows: no call fails, nobody calls an address more than 2 s after it was told to
// leave, and new machines get their part of the calls.
func TestC23AddressesChangeUnderLoad(t *testing.T) {
	t.Parallel()
	registry, service := "consul://"+testenv.Consul(t), "c23"
	launchOne := func(name string) (*serverPart, *testenv.Control) {
		p := &serverPart{Service: service, Listen: freeAddr(t), RPC: freeAddr(t), Registry: registry, Version: "v1"}
		return p, start(t, name, part{Server: p})
	}
	n := pick(2, 4)
	old, running := make([]*serverPart, n), make([]*testenv.Control, n)
	for i := range n {
		old[i], running[i] = launchOne("old-" + strconv.Itoa(i))
	}
	files := make([]string, 2)
	callers := make([]*testenv.Control, 2)
	for i, name := range []string{service, service + rpcSuffix} {
		files[i] = filepath.Join(t.TempDir(), "samples")
		callers[i] = start(t, "caller", part{Caller: &callerPart{Service: name, Registry: registry, RPC: i == 1, Rate: pick(50, 100), Samples: files[i]}})
	}
	pass(t, time.Second)
	grown := make([]*serverPart, 0, n+1)
	told := make([]time.Time, n)
	for i := range n {
		p, _ := launchOne("new-" + strconv.Itoa(i))
		grown = append(grown, p)
		told[i] = time.Now()
		must(t, running[i].Stop(20*time.Second)) // it leaves by itself: first the registry, then the socket
	}
	more, _ := launchOne("more")
	grown = append(grown, more)
	pass(t, pick(time.Second, 75*time.Second)) // in full until all are warm
	warm := time.Now()
	pass(t, pick(time.Second, 20*time.Second))
	var all []event
	for i, c := range callers {
		must(t, c.Stop(10*time.Second))
		all = append(all, readEvents(t, files[i])...)
	}
	judgeC23(t, old, grown, told, warm, all)
}

func judgeC23(t *testing.T, old, grown []*serverPart, told []time.Time, warm time.Time, all []event) {
	var left []time.Duration
	var rows [][]string
	for i, p := range old {
		for _, address := range []string{p.Listen, p.RPC} {
			left = append(left, leaves(all, address, told[i]))
			rows = append(rows, []string{strconv.Itoa(i), micros(left[len(left)-1])})
		}
	}
	keep(t, "C23", []string{"old_instance", "last_call_us_after_leaving"}, rows)
	calls, lost, failed := 0, 0, map[string]int{}
	for _, ev := range all {
		if ev.Kind == "call" && ev.Outcome != "ended" {
			calls++
			if ev.Outcome != served {
				lost++
				failed[ev.Outcome]++
			}
		}
	}
	counts := map[string]int{}
	for _, ev := range all {
		if ev.Kind == "pick" && ev.At.After(warm) {
			counts[ev.Address]++
		}
	}
	least, most := 1<<62, 0
	for _, p := range grown {
		n := counts[p.Listen] + counts[p.RPC]
		least, most = min(least, n), max(most, n)
	}
	figure(t, "C23", "%d instances moved to new addresses under load: callers right after %s (limit %s), %d of %d calls failed; then %d to %d calls each", len(old), spread(left), limitC23, lost, calls, least, most)
	if worst := quantile(left, 1); worst > limitC23 {
		t.Errorf("an old address was called %s after it was told to leave", worst)
	}
	if lost > 0 {
		t.Errorf("of %d calls failed %v", calls, failed)
	}
	if *full && least == 0 {
		t.Error("a new instance gets no calls")
	}
}
