package peers

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/go-kratos/kratos/v2/selector/p2c"
	"github.com/go-kratos/kratos/v2/selector/wrr"
	_ "google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/balancer/weightedroundrobin"
)

// contender is one of those that take turns.
type contender struct {
	name     string
	pick     Picker
	weighted bool // by the nodes' own weights; ours has a rule above them, P2C looks at load
}

func contenders(t testing.TB, n int) []contender {
	t.Helper()
	// Weights count from the first report, and for as long as this takes.
	const config = `{"blackoutPeriod": "0s", "weightUpdatePeriod": "60s", "weightExpirationPeriod": "3600s"}`
	weighted, end, err := GRPC(weightedroundrobin.Name, config, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	plain, end, err := GRPC("round_robin", "{}", n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return []contender{
		{"dispatch", Dispatch(n), false},
		{"kratos-wrr", Kratos(wrr.New(), n), true},
		{"kratos-p2c", Kratos(p2c.New(), n), false},
		{"grpc-wrr", weighted, true},
		{"grpc-rr", plain, false},
	}
}

// What is measured does its work: picks follow weights where they are weighted, the
// rule and the weights for ours, and everybody reaches every node.
func TestContendersDoTheirWork(t *testing.T) {
	const n, picks = 50, 100_000
	for _, c := range contenders(t, n) {
		counts := map[string]int{}
		for range picks {
			host, err := c.pick()
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			counts[host]++
		}
		sums := [2]float64{}
		for i, one := range nodes(n) {
			sums[i%2] += float64(one.weight)
		}
		for i, one := range nodes(n) {
			share := float64(counts[one.host]) / picks
			want := share
			switch {
			case c.weighted:
				want = float64(one.weight) / (sums[0] + sums[1])
			case c.name == "dispatch":
				want = []float64{0.7, 0.3}[i%2] * float64(one.weight) / sums[i%2]
			}
			// The rarest node has 500 of the calls, with a standard deviation of 23.
			if share == 0 || math.Abs(share-want) > 0.25*want {
				t.Errorf("%s gives %s %.4f of the calls, want %.4f", c.name, one.host, share, want)
			}
		}
	}
}

// BenchmarkPick lets all take turns, so that whatever else the machine does meets
// all, and gives the median of each one's turns.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{50, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			all := contenders(b, n)
			laps, times := make([]int, len(all)), make([][]float64, len(all))
			for i, c := range all {
				laps[i] = lap(b, c.pick)
			}
			for b.Loop() {
				for i, c := range all {
					times[i] = append(times[i], float64(turn(b, c.pick, laps[i]))/float64(laps[i]))
				}
			}
			for i, c := range all {
				slices.Sort(times[i])
				b.ReportMetric(times[i][len(times[i])/2], c.name+"-ns")
			}
			b.ReportMetric(0, "ns/op") // a round of turns is no figure
		})
	}
}

// lap is how many picks take 50 µs: much longer than reading the clock, much shorter
// than a time slice.
func lap(b *testing.B, pick Picker) int {
	for n := 1; ; n *= 2 {
		if turn(b, pick, n) > 50*time.Microsecond {
			return n
		}
	}
}

func turn(b *testing.B, pick Picker, n int) time.Duration {
	begin := time.Now()
	for range n {
		if _, err := pick(); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}
