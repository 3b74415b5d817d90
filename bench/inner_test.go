package main

import (
	"bufio"
	"strings"
	"testing"
)

func TestPeersAreComparedWithOurs(t *testing.T) {
	f := collectFigures(bufio.NewScanner(strings.NewReader(`goos: linux
BenchmarkPick/1000-2         	     500	        70 dispatch-ns	        35 grpc-wrr-ns	  0 B/op
BenchmarkPick/1000-2         	     500	        72 dispatch-ns	        36 grpc-wrr-ns	  0 B/op
BenchmarkPick/1000-2         	     500	        60 dispatch-ns	        15 grpc-wrr-ns	  0 B/op
PASS
`)))
	got := map[string]float64{}
	for _, r := range f.peers() {
		got[r.Name] = r.Value
	}
	want := map[string]float64{"pick among 1000 nodes: dispatch": 70, "pick among 1000 nodes: grpc-wrr": 35, "pick among 1000 nodes: dispatch / grpc-wrr": 2}
	if len(got) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, want %v", name, got[name], value)
		}
	}
}
