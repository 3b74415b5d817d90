package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

const aTrace = "4bf92f3577b34da6a3ce929d0e0e4736"

// span is a span ID that is easy to read.
func span(n int) string { return fmt.Sprintf("%016x", n) }

// hopLine is the line of a request: it ended at a time in milliseconds after eight.
func hopLine(service string, self, parent, end, took, status int, err string) string {
	line := map[string]any{"time": fmt.Sprintf("2026-11-30T08:00:00.%03dZ", end), "level": "INFO", "msg": "request", "service": service, "hop": fmt.Sprintf("10.0.0.%d:80", self),
		"traceId": aTrace, "spanId": span(self), "status": status, "took": took * 1_000_000}
	if parent > 0 {
		line["parentSpanId"] = span(parent)
	}
	if err != "" {
		line["err"], line["level"] = err, "ERROR"
	}
	text, _ := json.Marshal(line)
	return string(text) + "\n"
}

const decisionLine = `{"time":"2026-11-30T08:00:00Z","id":"00112233445566778899aabbccddeeff","traceId":"` + aTrace + `","spanId":"0000000000000001","app":"mobile","release":412,"digest":"ab","reason":"POLICY","policy":"staff","bucket":-1,"region":"sh","endpoint":"sh-main","notes":[]}` + "\n"

// logsOf writes files into a folder; those that end in .gz are packed.
func logsOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		content := []byte(text)
		if strings.HasSuffix(name, ".gz") {
			var packed bytes.Buffer
			w := gzip.NewWriter(&packed)
			if _, err := w.Write(content); err != nil || w.Close() != nil {
				t.Fatal(err)
			}
			content = packed.Bytes()
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// traced runs dispatchctl trace without a server and without a token.
func traced(t *testing.T, dir string, args ...string) printed {
	t.Helper()
	var out, log bytes.Buffer
	exit := run(t.Context(), append([]string{"trace", "--logs", dir}, args...), streams{out: &out, log: &log})
	return printed{exit, out.String(), log.String()}
}

// C26: one command names the hop at fault, out of the logs of all.
func TestTraceNamesTheHopAtFault(t *testing.T) {
	t.Parallel()
	dir := logsOf(t, map[string]string{
		"edge/decisions.log":         decisionLine + strings.Replace(decisionLine, aTrace, strings.Repeat("a", 32), 1),
		"shop.log":                   "not JSON, though it names " + aTrace + "\n" + hopLine("shop.api", 2, 1, 90, 80, 502, "call order.api: 502"),
		"order-2026-11-30.log.gz":    hopLine("order.api", 3, 2, 85, 70, 502, "call pay.api: connection refused"),
		"stock.log":                  hopLine("stock.api", 4, 3, 30, 10, 200, "") + `{"time":"2026-11-30T08:00:00.025Z","level":"ERROR","msg":"cache away","service":"stock.api","traceId":"` + aTrace + `","spanId":"` + span(4) + `","parentSpanId":"` + span(3) + `"}` + "\n",
		"other.log":                  strings.ReplaceAll(hopLine("other.api", 5, 0, 30, 10, 500, "boom"), aTrace, strings.Repeat("b", 32)),
		"mentions.log":               `{"msg":"looked for ` + aTrace + `","traceId":"` + strings.Repeat("c", 32) + `","spanId":"` + span(9) + `"}` + "\n",
		"nested/deeper/picture.jpeg": "\xff\xd8\xff\x00\x00" + strings.Repeat("\x00", 3000),
	})
	want := `began 2026-11-30 08:00:00.000Z
HOP                          START   TOOK  OUTCOME
dispatch /route              +0s     -     ok, mobile: POLICY by staff, sh/sh-main
  shop.api 10.0.0.2:80       +10ms   80ms  502, call order.api: 502
    order.api 10.0.0.3:80    +15ms   70ms  502, call pay.api: connection refused  ← at fault
      stock.api 10.0.0.4:80  +20ms   10ms  200, cache away
at fault: order.api 10.0.0.3:80, span 0000000000000003: 502, call pay.api: connection refused
`
	for _, id := range []string{aTrace, strings.ToUpper(aTrace), "00-" + aTrace + "-00f067aa0ba902b7-01"} {
		if got := traced(t, dir, id); got.exit != 0 || got.log != "" || spaces(got.out) != spaces(want) {
			t.Errorf("%s: exit %d, %s\n%s\nwant\n%s", id, got.exit, got.log, got.out, want)
		}
	}
	var answer struct {
		TraceID, Fault string
		Hops           []struct {
			Service string
			Depth   int
			Failed  bool
		}
	}
	if got := traced(t, dir, aTrace, "-o", "json"); json.Unmarshal([]byte(got.out), &answer) != nil || answer.TraceID != aTrace || answer.Fault != span(3) ||
		len(answer.Hops) != 4 || answer.Hops[3].Depth != 3 || answer.Hops[3].Failed {
		t.Errorf("%s", got.out)
	}
}

// spaces makes any run of blanks one.
func spaces(s string) string { return regexp.MustCompile(`[ \t]+`).ReplaceAllString(s, " ") }

func TestTraceOfRequestsThatDidNotFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ logs, want string }{
		"the slow one is named": {hopLine("a", 1, 0, 100, 100, 200, "") + hopLine("b", 2, 1, 95, 90, 200, "") + hopLine("c", 3, 2, 20, 10, 200, ""),
			"most of the time was spent in b 10.0.0.2:80 itself: 80ms of 90ms"},
		"a refusal is the caller's": {hopLine("a", 1, 0, 100, 100, 422, ""), "no hop failed"},
		"no line says how long":     {decisionLine, "no hop failed\n"},
		"a caller without a line":   {hopLine("b", 2, 7, 95, 90, 200, ""), "… called by a hop that wrote no line here"},
		"a ring":                    {hopLine("a", 1, 2, 10, 5, 200, "") + hopLine("b", 2, 1, 20, 5, 200, "") + hopLine("c", 3, 3, 30, 5, 200, ""), "\n  b 10.0.0.2:80"},
		"siblings by their start":   {hopLine("a", 1, 0, 100, 100, 200, "") + hopLine("late", 2, 1, 95, 10, 200, "") + hopLine("early", 3, 1, 30, 10, 200, ""), "  early 10.0.0.3:80"},
		"fields of somebody else": {`{"time":"2026-11-30T08:00:00Z","traceId":"` + aTrace + `","spanId":"` + span(1) + `","status":"fine","took":{},"service":"odd"}` + "\n",
			"odd"},
		"times as text":         {strings.Replace(hopLine("a", 1, 0, 100, 0, 200, ""), `"took":0`, `"took":"15ms"`, 1), "15ms"},
		"no newline at the end": {strings.TrimSpace(hopLine("a", 1, 0, 100, 100, 200, "")), "a 10.0.0.1:80"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := traced(t, logsOf(t, map[string]string{"x.log": c.logs}), aTrace); got.exit != 0 || !strings.Contains(got.out, c.want) {
				t.Errorf("exit %d, %s\n%s\nwant %s", got.exit, got.log, got.out, c.want)
			}
		})
	}
}

// Of several that failed the deepest is at fault, whoever logged first.
func TestTheDeepestFailureIsAtFault(t *testing.T) {
	t.Parallel()
	dir := logsOf(t, map[string]string{"x.log": hopLine("a", 1, 0, 100, 100, 500, "") + hopLine("shallow", 2, 1, 10, 5, 503, "") +
		hopLine("b", 3, 1, 95, 50, 502, "") + hopLine("deep", 4, 3, 90, 40, 500, "disk full") + hopLine("well", 5, 4, 80, 20, 200, "")})
	if got := traced(t, dir, aTrace); !strings.Contains(got.out, "at fault: deep 10.0.0.4:80, span "+span(4)+": 500, disk full\n") {
		t.Error(got.out)
	}
}

// C26: what another attempt made good, or a caller did without, is at fault for
// nothing, however deep it stands.
func TestWhatWasMadeGoodIsNotAtFault(t *testing.T) {
	t.Parallel()
	at := func(instance int, line string) string { // of another instance than its span's
		return strings.Replace(line, `"hop":"10.0.0.`, fmt.Sprintf(`"hop":"10.1.%d.`, instance), 1)
	}
	silent := func(line string) string {
		return strings.NewReplacer(`"status":200,`, "", `"took":`, `"x":`).Replace(line)
	}
	const noFault = "no hop failed; price 10.0.0.2:80, span 0000000000000002, failed and was made good by another attempt"
	for name, c := range map[string]struct{ logs, want string }{
		"below one that answered": {hopLine("shop", 1, 0, 100, 100, 502, "") + hopLine("pay", 2, 1, 90, 80, 500, "ledger is closed") + hopLine("stock", 3, 2, 60, 50, 200, "") +
			hopLine("price", 4, 3, 30, 10, 503, "") + hopLine("price", 5, 3, 50, 10, 200, ""), "at fault: pay 10.0.0.2:80, span " + span(2) + ": 500, ledger is closed\n"},
		"below one that failed by itself": {hopLine("pay", 1, 0, 100, 90, 500, "ledger is closed") + hopLine("price", 2, 1, 30, 10, 503, "") + hopLine("db", 3, 2, 29, 5, 500, "") +
			hopLine("price", 4, 1, 50, 10, 200, ""), "at fault: pay 10.0.0.1:80, span " + span(1) + ": 500, ledger is closed\n"},
		"the request did not fail":          {hopLine("shop", 1, 0, 100, 90, 200, "") + hopLine("price", 2, 1, 30, 10, 503, "") + hopLine("price", 3, 1, 50, 10, 200, ""), noFault + "; most of the time was spent in shop"},
		"what failed below it":              {hopLine("shop", 1, 0, 100, 90, 200, "") + hopLine("price", 2, 1, 30, 10, 502, "") + hopLine("db", 3, 2, 25, 5, 500, "") + hopLine("price", 4, 1, 50, 10, 200, ""), noFault},
		"the caller says no outcome":        {silent(hopLine("shop", 1, 0, 100, 90, 200, "")) + hopLine("price", 2, 1, 30, 10, 503, "") + hopLine("price", 3, 1, 50, 10, 200, ""), noFault},
		"the caller did without it":         {hopLine("shop", 1, 0, 100, 90, 200, "") + hopLine("price", 2, 1, 30, 10, 503, ""), "price 10.0.0.2:80, span 0000000000000002, failed and was made good by its caller; most"},
		"the other attempt failed, too":     {hopLine("shop", 1, 0, 100, 90, 502, "") + hopLine("price", 2, 1, 30, 10, 503, "first") + hopLine("price", 3, 1, 50, 10, 503, "second"), "at fault: price 10.0.0.2:80, span " + span(2)},
		"the good one came before":          {hopLine("shop", 1, 0, 100, 90, 502, "") + hopLine("price", 2, 1, 30, 10, 200, "") + hopLine("price", 3, 1, 50, 10, 503, "late"), "at fault: price 10.0.0.3:80"},
		"another service answered":          {hopLine("shop", 1, 0, 100, 90, 502, "") + hopLine("price", 2, 1, 30, 10, 503, "") + hopLine("stock", 3, 1, 50, 10, 200, ""), "at fault: price 10.0.0.2:80"},
		"the same instance is no retry":     {hopLine("shop", 1, 0, 100, 90, 502, "") + at(7, hopLine("price", 2, 1, 30, 10, 503, "")) + strings.Replace(hopLine("price", 3, 1, 50, 10, 200, ""), "10.0.0.3", "10.1.7.2", 1), "at fault: price 10.1.7.2:80, span " + span(2)},
		"a hop without outcome hides none":  {hopLine("shop", 1, 0, 100, 90, 502, "") + silent(hopLine("pay", 2, 1, 90, 80, 200, "")) + hopLine("price", 3, 2, 30, 10, 503, "full"), "at fault: price 10.0.0.3:80"},
		"calls of an app stand alone":       {decisionLine + hopLine("shop", 2, 1, 30, 10, 503, "closed") + hopLine("shop", 3, 1, 50, 10, 200, ""), "at fault: shop 10.0.0.2:80"},
		"below a caller that wrote no line": {hopLine("shop", 1, 0, 100, 90, 200, "") + hopLine("price", 2, 9, 30, 10, 503, "full"), "at fault: price 10.0.0.2:80"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := traced(t, logsOf(t, map[string]string{"x.log": c.logs}), aTrace)
			if got.exit != 0 || !strings.Contains(got.out, c.want) || strings.Contains(got.out, "at fault") != strings.Contains(c.want, "at fault") {
				t.Errorf("exit %d, %s\n%s\nwant %s", got.exit, got.log, got.out, c.want)
			}
		})
	}
}

// Exit status 1 and the next step when there is nothing; 64 for what is no trace.
func TestTraceThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := logsOf(t, map[string]string{"x.log": hopLine("a", 1, 0, 1, 1, 200, "")})
	if got := traced(t, dir, strings.Repeat("d", 32)); got.exit != exitFailed || !strings.Contains(got.log, "no line of 1 files") || !strings.Contains(got.log, "\ntry: ") {
		t.Errorf("%+v", got)
	}
	for _, id := range []string{"x", aTrace[1:], aTrace + "0", strings.Repeat("g", 32)} {
		if got := traced(t, dir, id); got.exit != exitUsage || !strings.Contains(got.log, "no trace") {
			t.Errorf("%s: %+v", id, got)
		}
	}
	if got := traced(t, filepath.Join(dir, "nowhere"), aTrace); got.exit != exitUsage {
		t.Errorf("%+v", got)
	}
}

// Lines of a megabyte are read, longer ones are counted, and what is behind them is
// found; a file that is no gzip does not stop the rest.
func TestTraceReadsWhatItCan(t *testing.T) {
	t.Parallel()
	long := strings.Replace(hopLine("a", 1, 0, 100, 100, 500, ""), `"msg":"request"`, `"msg":"`+strings.Repeat("x", maxLine-400)+`"`, 1)
	tooLong := strings.Replace(hopLine("b", 2, 1, 90, 50, 500, ""), `"msg":"request"`, `"msg":"`+strings.Repeat("x", 3*maxLine)+`"`, 1)
	dir := logsOf(t, map[string]string{"a.log": long + tooLong + hopLine("c", 3, 1, 80, 20, 500, "")})
	if err := os.WriteFile(filepath.Join(dir, "broken.gz"), []byte("no gzip"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := traced(t, dir, aTrace)
	if got.exit != 0 || !strings.Contains(got.log, "broken.gz") || !strings.Contains(got.log, "left out 1 lines") ||
		!strings.Contains(got.out, "at fault: c ") || strings.Contains(got.out, "b 10.0.0.2") || !strings.Contains(got.out, "a 10.0.0.1") {
		t.Errorf("%+v", got)
	}
}

// Where logs are links, as those of containers are, they are read through them; what
// is no file is named, and not opened.
func TestTraceFollowsLinks(t *testing.T) {
	t.Parallel()
	pods := logsOf(t, map[string]string{"shop/0.log": hopLine("shop", 1, 0, 100, 100, 502, ""), "pay/0.log.gz": hopLine("pay", 2, 1, 90, 50, 500, "disk full")})
	dir, above := logsOf(t, map[string]string{"own.log": hopLine("well", 3, 1, 30, 10, 200, "")}), t.TempDir()
	for name, to := range map[string]string{"shop.log": filepath.Join(pods, "shop/0.log"), "again.log": "shop.log", "pay.log": filepath.Join(pods, "pay/0.log.gz"),
		"folder": pods, "up": "..", "gone.log": filepath.Join(pods, "gone"), "ring.log": "ring.log"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil { // who opens it waits for ever
		t.Fatal(err)
	}
	link := filepath.Join(above, "current")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, logs := range []string{dir, link} {
		got := traced(t, logs, aTrace, "-o", "json")
		if got.exit != 0 || strings.Count(got.out, `"lines":1`) != 3 || !strings.Contains(got.out, `"fault":"`+span(2)) {
			t.Errorf("%s: exit %d\n%s", logs, got.exit, got.out)
		}
		for _, want := range []string{"folder: a link to a folder; give " + pods, "up: a link to a folder", "gone.log: lstat", "ring.log: EvalSymlinks: too many links", "pipe: no file but p"} {
			if !strings.Contains(got.log, want) {
				t.Errorf("%s: no warning %q:\n%s", logs, want, got.log)
			}
		}
		if n := strings.Count(got.log, "\n"); n != 5 {
			t.Errorf("%s: %d warnings\n%s", logs, n, got.log)
		}
	}
}

// However many hops a trace has, the number that is kept is bounded.
func TestTraceKeepsABoundedNumberOfHops(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for n := range maxHops + 3 {
		lines.WriteString(hopLine("a", n+1, n, n%1000, 0, 200, "")) // each calls the next: the deepest tree there is
	}
	if got := traced(t, logsOf(t, map[string]string{"x.log": lines.String()}), aTrace); got.exit != 0 || !strings.Contains(got.log, "3 of hops") {
		t.Errorf("exit %d, %s", got.exit, got.log)
	}
}

// What services write does not command the terminal.
func TestTracesDoNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	dir := logsOf(t, map[string]string{"x.log": hopLine("a\x1b]0;owned\a", 1, 0, 10, 5, 500, "bad\x1b[2J\nat fault: somebody else")})
	if got := traced(t, dir, aTrace); strings.ContainsAny(got.out, "\x1b\a") || strings.Contains(got.out, "\nat fault: somebody else") || strings.Count(got.out, "\n") != 4 {
		t.Errorf("%q", got.out)
	}
}
