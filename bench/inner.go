package main

import (
	"context"
	"strings"
)

// peersModule is a module of its own: see its package comment for what is measured.
const peersModule = "bench/peers"

// innerLayer gives the figures of a pick and of what brings it its tables, and those
// of other libraries' picks.
func innerLayer(ctx context.Context) ([]row, error) {
	own, err := runBenchmarks(ctx, ".", "./discovery/route", "./discovery/caller", "./discovery/directory", "./discovery/httpcall", "./discovery/grpccall", "./discovery")
	if err != nil {
		return nil, err
	}
	beside, err := runBenchmarks(ctx, peersModule, ".")
	if err != nil {
		return nil, err
	}
	return append(own.rows(), beside.peers()...), nil
}

// peers are the rows of bench/peers: what each pick takes, and ours over it. Its one
// benchmark is called after the number of nodes, its metrics after the libraries.
func (f *figures) peers() []row {
	const ours = "dispatch-ns"
	var rows []row
	for _, key := range f.order {
		bench, unit, _ := strings.Cut(key, " ")
		library, ns := strings.CutSuffix(unit, "-ns")
		if !ns {
			continue
		}
		_, nodes, _ := strings.Cut(bench, "/")
		name := "pick among " + nodes + " nodes: "
		rows = append(rows, row{Name: name + library, Value: median(f.runs[key]), Unit: "ns", Raw: f.runs[key]})
		if own := f.runs[bench+" "+ours]; unit != ours && len(own) == len(f.runs[key]) {
			rows = append(rows, ratio(name+"dispatch / "+library, own, f.runs[key]))
		}
	}
	return rows
}
