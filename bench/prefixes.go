package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"go4.org/netipx"

	"dispatch.example/dispatch/policy"
)

// prefixPackage carries the announced address ranges of the Internet with their
// AS numbers (Routeviews and DB-IP, CC-BY-4.0). It is read here and not kept.
const prefixPackage = "@ip-location-db/asn"

// realPrefixes loads 500,000 real prefixes and looks addresses up in them.
func realPrefixes(ctx context.Context) ([]row, error) {
	table, count, err := announcedPrefixes(ctx)
	if err != nil {
		return nil, err
	}
	var loadTimes, sizes, lookUps []float64
	for range 3 {
		before := heap()
		start := time.Now()
		prefixes, err := policy.ParsePrefixes(bytes.NewReader(table))
		if err != nil {
			return nil, fmt.Errorf("parse real prefixes: %w", err)
		}
		loadTimes = append(loadTimes, time.Since(start).Seconds())
		sizes = append(sizes, float64(heap()-before)/float64(count))
		lookUps = append(lookUps, lookUpTime(prefixes))
		runtime.KeepAlive(prefixes)
	}
	large, err := largeTable()
	if err != nil {
		return nil, err
	}
	return append([]row{
		{Name: "prefixes in the table", Value: float64(count), Unit: "prefixes", Raw: []float64{float64(count)}},
		{Name: "memory of the table", Value: median(sizes), Unit: "B a prefix", Raw: sizes},
		{Name: "parse and index", Value: median(loadTimes), Unit: "s", Raw: loadTimes},
		{Name: "look-up of a random address", Value: median(lookUps), Unit: "ns", Raw: lookUps},
	}, large...), nil
}

// largePrefixes is more than the whole Internet announces, half of it IPv6.
const largePrefixes = 1_400_000

// largeTable is the memory of a table of 1,400,000 generated prefixes, and the
// peak while a second one is parsed beside it, as at a release that replaces it.
func largeTable() ([]row, error) {
	var text bytes.Buffer
	for i := range largePrefixes / 2 {
		fmt.Fprintf(&text, "%d.%d.%d.0/24,r%d\n", 1+i>>16, i>>8&255, i&255, i%40)
		fmt.Fprintf(&text, "2001:%x:%x::/48,r%d\n", i>>8, i&255, i%40)
	}
	before := heap()
	old, err := policy.ParsePrefixes(bytes.NewReader(text.Bytes()))
	if err != nil {
		return nil, fmt.Errorf("parse large table: %w", err)
	}
	one := float64(heap() - before)
	peak := watchHeap()
	next, err := policy.ParsePrefixes(bytes.NewReader(text.Bytes()))
	top := float64(peak() - before)
	if err != nil {
		return nil, fmt.Errorf("parse large table: %w", err)
	}
	runtime.KeepAlive(old)
	runtime.KeepAlive(next)
	return []row{
		{Name: "memory of 1,400,000 generated prefixes", Value: one / (1 << 20), Unit: "MiB", Raw: []float64{one}},
		row{Name: "peak while such a table replaces another", Value: top / one, Unit: "× one", Raw: []float64{top}}.atMost(2.2),
	}, nil
}

// watchHeap samples live objects, swept or not, until the returned function gives the most.
func watchHeap() (peak func() uint64) {
	const live = "/memory/classes/heap/objects:bytes"
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		sample, top := []metrics.Sample{{Name: live}}, uint64(0)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(sample)
			top = max(top, sample[0].Value.Uint64())
			select {
			case <-tick.C:
			case <-stop:
				most <- top
				return
			}
		}
	}()
	return func() uint64 { close(stop); return <-most }
}

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// lookUpTime is ns a look-up over a million random IPv4 addresses.
func lookUpTime(prefixes *policy.Prefixes) float64 {
	random := rand.New(rand.NewPCG(1, 2))
	addrs := make([]netip.Addr, 1_000_000)
	for i := range addrs {
		n := random.Uint32()
		addrs[i] = netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	found := 0
	start := time.Now()
	for _, addr := range addrs {
		if _, ok := prefixes.Lookup(addr); ok {
			found++
		}
	}
	elapsed := time.Since(start)
	runtime.KeepAlive(found)
	return float64(elapsed.Nanoseconds()) / float64(len(addrs))
}

// announcedPrefixes is a prefix,label table of 500,000 lines from the package.
func announcedPrefixes(ctx context.Context) (table []byte, count int, err error) {
	dir, err := os.MkdirTemp("", "dispatch-prefixes-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	if _, err := exec.LookPath("npm"); err != nil {
		return nil, 0, errors.New("fetch real prefixes: npm is not installed; try: apt-get install npm, or -only go,serve")
	}
	if out, err := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", dir, prefixPackage).CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("fetch real prefixes: %w\n%s", err, out)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return nil, 0, fmt.Errorf("fetch real prefixes: want one archive, have %d", len(archives))
	}
	return readArchive(archives[0], 500_000)
}

func readArchive(path string, limit int) (table []byte, count int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, 0, fmt.Errorf("read real prefixes: %w", err)
	}
	files := tar.NewReader(unzipped)
	var lines []string
	for len(lines) < limit {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("read real prefixes: only %d prefixes, want %d", len(lines), limit)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read real prefixes: %w", err)
		}
		name := filepath.Base(header.Name)
		if name != "asn-ipv4.csv" && name != "asn-ipv6.csv" {
			continue
		}
		if lines, err = appendRanges(lines, files); err != nil {
			return nil, 0, fmt.Errorf("read real prefixes: %s: %w", name, err)
		}
	}
	return []byte(strings.Join(lines[:limit], "")), limit, nil
}

// appendRanges turns start,end,asn,name records into prefix,label lines.
func appendRanges(lines []string, r io.Reader) ([]string, error) {
	records := csv.NewReader(r)
	records.FieldsPerRecord = -1
	for {
		record, err := records.Read()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		if len(record) < 3 {
			continue
		}
		from, errFrom := netip.ParseAddr(record[0])
		to, errTo := netip.ParseAddr(record[1])
		if errFrom != nil || errTo != nil {
			return nil, errors.Join(errFrom, errTo)
		}
		for _, prefix := range netipx.IPRangeFrom(from, to).Prefixes() {
			lines = append(lines, prefix.String()+",as"+record[2]+"\n")
		}
	}
}
