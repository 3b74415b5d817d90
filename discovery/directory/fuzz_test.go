package directory

import (
	"encoding/json"
	"testing"

	"dispatch.example/dispatch/discovery/route"
	"dispatch.example/dispatch/discovery/wire"
)

// Whatever a caller sends, the answer is a list, nothing, or a problem that names the
// mistake; it is never our own failure.
func FuzzBodies(f *testing.F) {
	paths := []string{wire.TablesPath, wire.ReportsPath, wire.RecordsPath}
	cpu := 5.0
	report := reportOf(at("orders", 1))
	report.Load.CPU = &cpu
	for path, bodies := range map[uint8][]any{
		0: {wire.Ask{Caller: "c", Home: home(), Services: []string{"service-0", "x"}, Epoch: "e", Version: 1 << 63}, wire.Ask{}, "[]", "{", `{"version":-1}`, `{"caller":"c","home":null}`},
		1: {[]wire.Report{report, report}, "null", "[null]", `[{"id":"x","service":"y","address":"[::1]:80","load":{"cpu":1e400}}]`, `[{"started":"9999-12-31T23:59:59-14:00"}]`},
		2: {wire.Batch{Caller: "c", Dropped: 1 << 63, Views: []route.View{{Digest: "x"}}, Records: []wire.Record{{ID: "1"}}}, `{"caller":"\u0000"}`, `{"records":[{"draw":5}]}`},
	} {
		for _, body := range bodies {
			text, raw := body.(string)
			if !raw {
				text = string(plain(body))
			}
			f.Add(path, text)
		}
	}
	d, _ := still(f, 3, 3)
	s := serve(f, d, newBoard())
	f.Fuzz(func(t *testing.T, path uint8, body string) {
		w := send(s, paths[int(path)%len(paths)], body+" ")
		switch {
		case w.Code >= 500, w.Code != 204 && !json.Valid(w.Body.Bytes()):
			t.Errorf("status %d: %q", w.Code, w.Body)
		case w.Code == 200:
			var got wire.Tables
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || !got.Full {
				t.Errorf("%v in %s", err, w.Body)
			}
		}
	})
}
