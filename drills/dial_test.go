package drills

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"dispatch.example/dispatch/discovery"
	"dispatch.example/dispatch/internal/testenv"
)

// limitA41 is what a connection may take, and a little for the call behind it.
const limitA41 = 550 * time.Millisecond

// A41: one of five addresses is a black hole: a dial there ends within 500 ms, and
// the call goes to another instance and is served.
func TestA41BlackHoledAddress(t *testing.T) {
	if !namespaces(t) {
		return
	}
	n := newNetwork(t, 5)
	n.cut(t, 1)
	var servers []*testenv.Control
	listed := []discovery.Instance{instance(t, "a41", n.host(1)+":8080", "v1")}
	for i := 2; i <= 5; i++ {
		p := &serverPart{Service: "a41", Listen: n.host(i) + ":8080", Version: "v1"}
		servers = append(servers, launch(t, "server-"+strconv.Itoa(i), part{Server: p}, n.inside(i)...))
		listed = append(listed, instance(t, "a41", p.Listen, "v1"))
	}
	awaitReady(t, servers...)
	var hit []time.Duration
	var rows [][]string
	picked := 0
	for run := range pick(2, 20) {
		file := filepath.Join(t.TempDir(), "samples")
		// Until it is ejected, after a second and a half, the address gets a fifth of the
		// calls, and a caller that has just begun has ten retries in its budget for them. Of
		// 12 calls a second 11 go there in 2 of 10,000 runs, of 30 in every eighth.
		p := &callerPart{Service: "a41", Registry: roster(t, listed...), Rate: 12, Samples: file}
		c := start(t, "caller", part{Caller: p}, n.inside(0)...)
		pass(t, 2*time.Second)
		must(t, c.Stop(5*time.Second))
		for _, ev := range readEvents(t, file) {
			switch {
			case ev.Kind == "pick" && ev.Address == n.host(1)+":8080":
				picked++
			case ev.Kind == "call" && ev.Outcome != served && ev.Outcome != "ended":
				t.Errorf("a call ended with %s after %s", ev.Outcome, ev.Took)
			case ev.Kind == "call" && ev.Took > 300*time.Millisecond: // none of the others takes a tenth of it
				hit = append(hit, ev.Took)
				rows = append(rows, []string{strconv.Itoa(run), micros(ev.Took)})
			}
		}
	}
	if picked == 0 {
		t.Error("nobody was sent to the black hole")
	}
	keep(t, "A41", []string{"run", "took_us"}, rows)
	figure(t, "A41", "black-holed address: %d calls went there first, all were served by another, after %s (limit %s)", len(hit), spread(hit), limitA41)
	if worst := quantile(hit, pick(0.5, 1)); worst > limitA41 || len(hit) == 0 {
		t.Errorf("%d calls went there first, and were served after %s", len(hit), worst)
	}
}
