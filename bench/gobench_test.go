package main

import (
	"bufio"
	"strings"
	"testing"
)

func TestFiguresAreReadFromGoTest(t *testing.T) {
	f := collectFigures(bufio.NewScanner(strings.NewReader(`goos: linux
BenchmarkDecide/ids=5k-2         	  918334	      1200 ns/op	      0 B/op	       0 allocs/op
BenchmarkDecide/ids=5k-2         	  918334	      900 ns/op	      0 B/op	       0 allocs/op
BenchmarkDecide/ids=5k-2         	  918334	      950 ns/op	      0 B/op	       0 allocs/op
BenchmarkLoad/5M/1lists-2        	       4	 300000000 ns/op	        18.70 B/id
PASS
`)))
	got := map[string]row{}
	for _, r := range f.rows() {
		got[r.Name+" "+r.Unit] = r
	}
	if r := got["Decide/ids=5k ns/op"]; r.Value != 950 || len(r.Raw) != 3 || r.Met == nil || !*r.Met {
		t.Errorf("the median of three runs within 1 µs is %+v", r)
	}
	if r := got["Decide/ids=5k allocs/op"]; r.Met == nil || !*r.Met {
		t.Errorf("promised allocations are left out: %+v", r)
	}
	if _, ok := got["Decide/ids=5k B/op"]; ok {
		t.Error("bytes that nothing is promised of are shown")
	}
	if r := got["Load/5M/1lists ms/op"]; r.Value != 300 {
		t.Errorf("a long time is shown as %+v", r)
	}
	if r := got["Load/5M/1lists B/id"]; r.Value != 18.7 || r.Met == nil {
		t.Errorf("a metric of its own is %+v", r)
	}
}

func TestRatiosComeFromPairs(t *testing.T) {
	r := ratio("a / b", []float64{2, 4, 9}, []float64{1, 2, 3}).atMost(2)
	if r.Value != 2 || !*r.Met || r.Raw[2] != 3 {
		t.Errorf("%+v", r)
	}
	if r = ratio("a / b", []float64{3}, []float64{1}).atMost(2); *r.Met {
		t.Error("a missed limit counts as met")
	}
}

func TestQuantile(t *testing.T) {
	v := make([]float64, 101)
	for i := range v {
		v[100-i] = float64(i)
	}
	if q := quantile(v, 0.99); q != 99 {
		t.Errorf("p99 of 0..100 is %v", q)
	}
}
