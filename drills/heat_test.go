package drills

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/testenv"
)

const (
	// limitA44 is what a sick version may have left of the calls, and soonA44 by when.
	limitA44, soonA44 = 0.05, 180 * time.Second
	// tellA44 is the time that one share is counted over.
	tellA44 = 10 * time.Second
)

// first runs a program with one processor, all of which a busy loop is, and as root
// lets it have that one whatever else this machine does: a session of its own, because
// Linux shares processors among sessions first.
var first = []string{"setsid", "sh", "-c", `echo -20 2>/dev/null >/proc/self/autogroup; exec nice -n -20 env GOMAXPROCS=1 "$0"`}

// A44: v2.4.0 has seven of ten calls, its CPU goes to 100 %, and nobody touches
// anything: after 180 s it has less than 5 %. Heartbeats, control node and callers are
// real, and so is the CPU. In small discovery/caller replays it.
func TestA44SickVersionLosesItsTraffic(t *testing.T) {
	if !*full {
		return // it takes three minutes; TestSickVersionLosesItsTraffic is the small form
	}
	registry, service := "consul://"+testenv.Consul(t), "a44"
	n := startNode(t, registry)
	version := map[string]string{}
	var sick string
	for i, v := range []string{"v2.3.1", "v2.3.1", "v2.4.0"} {
		p := &serverPart{Service: service, Listen: freeAddr(t), Registry: registry, Version: v, Control: n.reach()}
		version[p.Listen] = v
		start(t, "server-"+strconv.Itoa(i), part{Server: p}, first...)
		if v == "v2.4.0" {
			sick = p.Listen
		}
	}
	within(t, 20*time.Second, func() error { return n.listed(t, service) })
	n.apply(t, service, "strategy: {version: \"v2.4.0\", weight: 70}\nfallback: {version: \"v2.3.1\", weight: 30, condition: \"target-load > 80\"}")
	file := filepath.Join(t.TempDir(), "samples")
	c := start(t, "caller", part{Caller: &callerPart{Service: service, Registry: registry, Rate: 100, Samples: file, Control: n.reach()}})
	pass(t, 90*time.Second) // until all are warm and the first loads have come
	begin := time.Now()
	direct(t, "POST", sick, "/drill/burn", nil)
	pass(t, soonA44+tellA44)
	must(t, c.Stop(10*time.Second))
	shares := sharesA44(readEvents(t, file), begin, version)
	var rows [][]string
	soon := time.Duration(0)
	for i, s := range shares {
		at := time.Duration(i-1) * tellA44
		rows = append(rows, []string{strconv.Itoa(int(at.Seconds())), strconv.FormatFloat(s, 'f', 4, 64)})
		if s < limitA44 && soon == 0 && i > 0 {
			soon = at
		}
	}
	keep(t, "A44", []string{"seconds_from_fault", "share_in_the_next_10_s"}, rows)
	last := shares[len(shares)-1]
	figure(t, "A44", "v2.4.0 at 100 %% CPU: from %.1f %% to under 5 %% of the calls within %s, %.1f %% after %s (limit 5 %%), nobody touched anything", 100*shares[0], short(soon), 100*last, soonA44)
	if last >= limitA44 || shares[0] < 0.5 {
		t.Errorf("v2.4.0 had %.1f %%, and has %.1f %%", 100*shares[0], 100*last)
	}
}

// sharesA44 are those of v2.4.0, from the ten seconds before the fault on.
func sharesA44(events []event, begin time.Time, version map[string]string) []float64 {
	windows := int((soonA44+tellA44)/tellA44) + 1
	all, ill := make([]int, windows), make([]int, windows)
	for _, ev := range events {
		at := int((ev.At.Sub(begin) + tellA44) / tellA44)
		if ev.Kind != "pick" || ev.At.Before(begin.Add(-tellA44)) || at >= windows {
			continue
		}
		all[at]++
		if version[ev.Address] == "v2.4.0" {
			ill[at]++
		}
	}
	shares := make([]float64, windows)
	for i := range shares {
		shares[i] = float64(ill[i]) / float64(max(all[i], 1))
	}
	return shares
}
