package store

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/ledger"
)

func TestProbesAreThoseOfTheLastHour(t *testing.T) {
	for _, kind := range []string{"sqlite", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			clock := newClock()
			s := openTest(t, newDSN(t, kind), Options{Now: clock.now})
			probe := func(host, prober, state string) ledger.Probe {
				return ledger.Probe{Host: host, Prober: prober, State: state, Since: clock.now().Add(-time.Hour), Last: clock.now(),
					Problem: "no route 不通", Expires: clock.now().Add(time.Hour),
					Recent: []ledger.ProbeShot{{At: clock.now(), OK: true, Millis: 12}}}
			}
			must(t, s.SaveProbes(t.Context(), nil))
			must(t, s.SaveProbes(t.Context(), []ledger.Probe{probe("b.example", "r1", "up"), probe("a.example", "r1", "down")}))
			must(t, s.SaveProbes(t.Context(), []ledger.Probe{probe("a.example", "r2", "up")}))
			clock.advance(time.Minute)
			must(t, s.SaveProbes(t.Context(), []ledger.Probe{probe("a.example", "r1", "up")}))
			read := func() []ledger.Probe {
				list, err := s.Probes(t.Context())
				must(t, err)
				return list
			}
			list := read()
			if len(list) != 3 || !reflect.DeepEqual(list[0], probe("a.example", "r1", "up")) || list[1].Prober != "r2" || list[2].Host != "b.example" {
				t.Errorf("probes = %+v", list)
			}
			clock.advance(time.Hour)
			if list := read(); len(list) != 1 || list[0].Prober != "r1" || list[0].Host != "a.example" {
				t.Errorf("probes after an hour = %+v", list)
			}
			must(t, s.SaveProbes(t.Context(), nil))
			var rows int64
			must(t, s.reader.Model(&probeRow{}).Count(&rows).Error)
			if rows != 1 || verify(t, s).Head.Seq != 0 {
				t.Errorf("%d rows are kept, want 1, and no audit row", rows)
			}
			want(t, s.SaveProbes(t.Context(), []ledger.Probe{{Host: "", Prober: "r"}}), fault.Invalid, "bad_probe")
			many := make([]ledger.Probe, countsBatch+5)
			for i := range many {
				many[i] = probe(fmt.Sprintf("h%d.example", i), "r", "up")
			}
			must(t, s.SaveProbes(t.Context(), many))
			if list := read(); len(list) != len(many)+1 {
				t.Errorf("%d probes, want %d", len(list), len(many)+1)
			}
		})
	}
}
