package pages

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"dispatch.example/dispatch/admin/actions"
)

// soon is how long the map of 200 services in 4 environments may take a processor. Time
// on the wall would say how busy the machine is with other things.
const soon = 100 * time.Millisecond

func TestMapOfManyServicesIsSoonThere(t *testing.T) {
	const times = 3
	draw, size := manyDrawn(t)
	draw() // the first one compiles the escapers
	begin := processorTime(t)
	for range times {
		draw()
	}
	took := (processorTime(t) - begin) / times
	t.Logf("200 services in 4 environments: %s of a processor, %d KB", took.Round(100*time.Microsecond), size()>>10)
	if took > soon*slowdown {
		t.Errorf("it takes %s, more than %s", took, soon*slowdown)
	}
}

func BenchmarkMapOfManyServices(b *testing.B) {
	draw, _ := manyDrawn(b)
	b.ReportAllocs()
	begin := processorTime(b)
	for b.Loop() {
		draw()
	}
	b.ReportMetric(float64((processorTime(b)-begin)/time.Microsecond)/float64(b.N), "cpu-us/op")
}

// manyDrawn draws the map of 200 services in 4 environments, and says how large it came out.
func manyDrawn(t testing.TB) (draw func(), size func() int) {
	p := &Pages{catalogue: must(readCatalogue(files)), opt: Options{Now: time.Now}}
	p.templates = must(parseTemplates(files, p.catalogue, must(readAssets(files)), time.Now))
	set := must(p.templates.of("en", []string{actions.Viewer}, "map"))
	m := manyCells(200, "dev", "prod", "staging", "test")
	var out strings.Builder
	return func() {
		out.Reset()
		page := &mapPage{inner: inner{Region: "cn-hangzhou", At: time.Now(), Rules: actions.RulesView{Number: 12}}}
		page.draw(m, &visit{Pages: p, lang: "en"})
		if err := set.ExecuteTemplate(&out, "main", view{Page: page, Lang: "en"}); err != nil {
			t.Fatal(err)
		}
	}, func() int { return out.Len() }
}

// processorTime is what this process has used so far.
func processorTime(t testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
