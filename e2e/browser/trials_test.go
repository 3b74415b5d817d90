package browser

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Scripted usability: somebody reads "SHOP in CITY fails", finds its card among
// eighteen that look alike, swaps, and never another. It says nothing about people;
// it says that the page names what it acts on, each time, and acts on that.
func TestScriptedTrialsSwapNoWrongRegion(t *testing.T) {
	apps, cities := []string{"mobile", "mobile-old", "corporate"}, []string{"sh", "sh2", "hf", "bj", "gz", "cd"}
	s := serve(t, "--bootstrap", manyRegions(t, apps, cities), "--four-eyes", "off", "--probes", "off", "--allowed-suffixes", "bank.example")
	s.hurry(t)
	w := tab(t, s, Look{})
	must(t, w.FirstSignIn(s, "admin", s.Password))
	serving := map[string]string{}
	for _, app := range apps {
		for _, city := range cities {
			serving[app+"/"+city] = host(app, city, "main")
		}
	}
	trials, seed := pick(20, 50), uint64(time.Now().UnixNano())
	chance := rand.New(rand.NewPCG(seed, 0))
	var total time.Duration
	for range trials {
		app, city := apps[chance.IntN(len(apps))], cities[chance.IntN(len(cities))]
		begin := time.Now()
		w.Do(t, chromedp.Navigate(s.Console+"/emergency"), chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
			`[...document.querySelectorAll("section.region")].find(e => e.querySelector("h2 .mono").innerText === %q).querySelector(".do > form button.danger").click()`, app+"/"+city)),
			Reads("form.panel h3", app+"/"+city), chromedp.Evaluate[chromedp.Void](overrides), Type("form.panel [name=confirm]", Environment+"/"+city), chromedp.Click(chromedp.CSS("form.panel button.danger")), Reads("#progress", "1/1"))
		total += time.Since(begin)
		other := host(app, city, "spare")
		if serving[app+"/"+city] == other {
			other = host(app, city, "main")
		}
		serving[app+"/"+city] = other
		for _, a := range apps {
			for _, c := range cities {
				if got := s.serves(t, a, c); got != serving[a+"/"+c] {
					t.Fatalf("seed %d: after %s/%s was swapped, %s/%s serves %s, not %s", seed, app, city, a, c, got, serving[a+"/"+c])
				}
			}
		}
	}
	figure("WALK", "scripted usability: %d of %d trials swapped the right one of %d regions, 0 wrong, %s each", trials, trials, len(apps)*len(cities), (total / time.Duration(trials)).Round(10*time.Millisecond))
}

func host(app, city, part string) string { return app + "-" + city + "-" + part + ".bank.example" }

// manyRegions writes a document of apps that each stand in every city, with a spare.
func manyRegions(t *testing.T, apps, cities []string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("apps:\n")
	for i, app := range apps {
		fmt.Fprintf(&b, "  - key: %s\n    default: %t\n    fallback: %s.bank.example\n    regions:\n", app, i == 0, app)
		for j, city := range cities {
			fmt.Fprintf(&b, "      - key: %s\n        failover: [%s]\n        endpoints:\n", city, cities[(j+1)%len(cities)])
			fmt.Fprintf(&b, "          - {key: main, domain: %s}\n          - {key: spare, domain: %s, state: standby}\n", host(app, city, "main"), host(app, city, "spare"))
		}
		b.WriteString("    otherwise: {region: sh}\n")
	}
	path := filepath.Join(t.TempDir(), "many.yaml")
	must(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

// hurry lets one person do what three may do in ten minutes.
func (s *Server) hurry(t *testing.T) {
	t.Helper()
	var now struct {
		Rev      uint64
		Settings struct {
			Safety  map[string]any    `json:"safety"`
			Freezes []json.RawMessage `json:"freezes"`
		}
	}
	must(t, s.Call(t.Context(), s.Token, "GET /settings", nil, &now))
	safety := now.Settings.Safety
	safety["emergencies_per_person"], safety["flap_wait"], safety["flap_wait_after_two"], safety["flap_window"], safety["emergency_window"] = 100, "1s", "1s", "1s", "1s"
	must(t, s.Call(t.Context(), s.Token, "PUT /settings", map[string]any{"safety": safety, "freezes": []string{}, "reason": "trials"}, nil, "If-Match", fmt.Sprint(now.Rev)))
}

// serves is the domain that an app's region serves.
func (s *Server) serves(t *testing.T, app, region string) string {
	t.Helper()
	var view struct {
		Regions []struct {
			Key       string
			Endpoints []struct{ Domain, State string }
		}
	}
	must(t, s.Call(t.Context(), s.Token, "GET /apps/"+app, nil, &view))
	for _, r := range view.Regions {
		for _, e := range r.Endpoints {
			if r.Key == region && e.State == "active" {
				return e.Domain
			}
		}
	}
	return ""
}
