package whitelist

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"dispatch.example/dispatch/internal/fault"
)

// idsOf are the ids of a content, sorted.
func idsOf(tb testing.TB, c *Content) []string {
	tb.Helper()
	var ids []string
	for b := range c.Blobs() {
		ids = append(ids, strings.Split(string(b.Raw), "\n")...)
	}
	slices.Sort(ids)
	return ids
}

func TestImportReadsEveryFormat(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text   string
		opt    ImportOptions
		want   []string
		report Report
	}{
		"one id a line":                  {text: "a\nb\n", want: []string{"a", "b"}, report: Report{Format: Lines, Lines: 2}},
		"no line end at the end":         {text: "a\nb", want: []string{"a", "b"}, report: Report{Format: Lines, Lines: 2}},
		"e23: BOM, space, CRLF":          {text: "\ufeffu1 \r\nu2\r\n", want: []string{"u1", "u2"}, report: Report{Format: Lines, Lines: 2}},
		"e33: blank lines":               {text: "\n a\n\n\t\r\nb\n\n", want: []string{"a", "b"}, report: Report{Format: Lines, Lines: 6, Blank: 4}},
		"duplicates":                     {text: "a\nb\na\n a\n", want: []string{"a", "b"}, report: Report{Format: Lines, Lines: 4, Duplicates: 2}},
		"nothing":                        {text: "", report: Report{}},
		"BOM alone":                      {text: "\ufeff", report: Report{}},
		"blank alone":                    {text: "\n\n", report: Report{Lines: 2, Blank: 2}},
		"hash is an id, no comment":      {text: "#1\n", want: []string{"#1"}, report: Report{Format: Lines, Lines: 1}},
		"quoted lines":                   {text: "\"a\"\n\"b \"\"c\"\"\"\n", want: []string{"a", `b "c"`}, report: Report{Format: Lines, Lines: 2}},
		"lines with commas, said so":     {text: "a,1\nb;2\n", opt: ImportOptions{Format: Lines}, want: []string{"a,1", "b;2"}, report: Report{Format: Lines, Lines: 2}},
		"lines, the first is id":         {text: "id\na\n", opt: ImportOptions{Format: Lines}, want: []string{"a", "id"}, report: Report{Format: Lines, Lines: 2}},
		"NFC":                            {text: "u\u0308\n\u00fc\n", want: []string{"\u00fc"}, report: Report{Format: Lines, Lines: 2, Duplicates: 1}},
		"CSV of one column":              {text: "ID\na\nb\n", want: []string{"a", "b"}, report: Report{Format: CSV, Lines: 3}},
		"CSV, column found":              {text: "name,Id ,city\nx,a,sh\ny,b,hf\n", want: []string{"a", "b"}, report: Report{Format: CSV, Lines: 3}},
		"CSV, column named":              {text: "id,device_id\n1,a\n2,b\n", opt: ImportOptions{Column: "Device_ID"}, want: []string{"a", "b"}, report: Report{Format: CSV, Lines: 3}},
		"CSV, quoted":                    {text: "\"id\",\"note\"\n\"a\",\"x, \"\"y\"\"\"\n\"b,c\",\n", want: []string{"a", "b,c"}, report: Report{Format: CSV, Lines: 3}},
		"CSV, BOM, CRLF, blanks":         {text: "\ufeff\r\nid,x\r\n\r\na,1\r\n", want: []string{"a"}, report: Report{Format: CSV, Lines: 4, Blank: 2}},
		"CSV, header alone":              {text: "id\n", report: Report{Format: CSV, Lines: 1}},
		"CSV, empty names in the header": {text: "id,,\na,1,2\n", want: []string{"a"}, report: Report{Format: CSV, Lines: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, r := range map[string]io.Reader{
				"whole": strings.NewReader(c.text), "bytes": iotest.OneByteReader(strings.NewReader(c.text)),
				"with its end": iotest.DataErrReader(strings.NewReader(c.text)),
			} {
				opt := importOptions(t)
				opt.Format, opt.Column, opt.AllowEmpty = c.opt.Format, c.opt.Column, true
				report, content, err := Import(r, opt)
				if err != nil {
					t.Fatal(err)
				}
				want := c.report
				want.IDs, want.Added = len(c.want), len(c.want)
				if got := fmt.Sprintf("%+v", report); got != fmt.Sprintf("%+v", want) {
					t.Errorf("%s: report %s, want %+v", how, got, want)
				}
				if got := idsOf(t, content); !slices.Equal(got, c.want) {
					t.Errorf("%s: ids %q, want %q", how, got, c.want)
				}
			}
		})
	}
}

func TestImportNamesBadLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine+1)
	for name, c := range map[string]struct {
		text, column string
		line         int
		detail       string
	}{
		"NUL":                    {"a\nb\x00c\n", "", 2, "control character"},
		"escape sequence":        {"a\n\x1b[31m\n", "", 2, "control character"},
		"carriage return inside": {"a\nb\rc\n", "", 2, "control character"},
		"not UTF-8":              {"a\nb\xff\n", "", 2, "not UTF-8"},
		"long id":                {"a\n" + strings.Repeat("x", 257) + "\n", "", 2, "more than 256 bytes"},
		"long line":              {"a\n" + long + "\nb\n", "", 2, "the line has more than"},
		"long line first":        {long + "\na\n", "", 1, "the line has more than"},
		"long line last":         {"a\n" + long, "", 2, "the line has more than"},
		"very long line":         {"a\n" + strings.Repeat(long, 9) + "\nb\n", "", 2, "the line has more than"},
		"placeholder":            {"a\n\nNULL\n", "", 3, "counts as absent"},
		"quote not closed":       {"a\n\"b\nc\n", "", 2, "quoted id"},
		"text after a quote":     {"a\n\"b\" c\n", "", 2, "quoted id"},
		"one quote":              {"a\n\"\n", "", 2, "quoted id"},
		"zero-width alone":       {"a\n\u200b\n", "", 2, "blank"},
		"CSV, too few fields":    {"id,x\na,1\nb\n", "", 3, "1 fields, the header 2"},
		"CSV, too many fields":   {"id,x\na,1,2\n", "", 2, "3 fields, the header 2"},
		"CSV, quote not closed":  {"id,x\na,\"1\nb,2\n", "", 2, "does not end on its line"},
		"CSV, quote inside":      {"id,x\na\"b,1\n", "", 2, "inside a field"},
		"CSV, text after quote":  {"id,x\n\"a\"b,1\n", "", 2, "something else than a comma"},
		"CSV, blank id":          {"id,x\n ,1\n", "", 2, "blank"},
		"CSV, named, bad":        {"d,x\na,1\n\x01,1\n", "d", 3, "control character"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := importOptions(t)
			opt.Column = c.column
			report, content, err := Import(strings.NewReader(c.text), opt)
			if fault.CodeOf(err) != "bad_lines" || content != nil {
				t.Fatalf("got %v", err)
			}
			if report.Bad != 1 || len(report.Problems) != 1 || report.Problems[0].Line != c.line ||
				!strings.Contains(report.Problems[0].Detail, c.detail) {
				t.Errorf("report %+v", report)
			}
			opt.MaxBad, opt.AllowEmpty = 1, true
			if report, content, err = Import(strings.NewReader(c.text), opt); err != nil || report.Bad != 1 || content == nil {
				t.Errorf("with one bad line allowed: %v", err)
			}
		})
	}
}

func TestImportRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	for name, c := range map[string]struct {
		r    io.Reader
		opt  ImportOptions
		code string
	}{
		"duplicate header":       {r: strings.NewReader("id,name,ID\na,b,c\n"), code: "bad_header"},
		"table without the id":   {r: strings.NewReader("device,name\na,b\n"), code: "bad_header"},
		"semicolons":             {r: strings.NewReader("id;name\na;b\n"), code: "bad_header"},
		"tabs":                   {r: strings.NewReader("id\tname\na\tb\n"), code: "bad_header"},
		"CSV without the column": {r: strings.NewReader("a\nb\n"), opt: ImportOptions{Format: CSV}, code: "bad_header"},
		"named column missing":   {r: strings.NewReader("id\nb\n"), opt: ImportOptions{Column: "device"}, code: "bad_header"},
		"UTF-16":                 {r: strings.NewReader("\xff\xfea\x00\n\x00"), code: "bad_encoding"},
		"workbook":               {r: strings.NewReader("PK\x03\x04...."), code: "bad_encoding"},
		"gzip":                   {r: strings.NewReader("\x1f\x8b\x08..."), code: "bad_encoding"},
		"too many ids":           {r: strings.NewReader("a\nb\nc\n"), opt: ImportOptions{MaxIDs: 2}, code: "too_many_ids"},
		"too many bytes":         {r: strings.NewReader("a\nb\nc\n"), opt: ImportOptions{MaxBytes: 5}, code: "too_large"},
		"unknown format":         {r: strings.NewReader("a\n"), opt: ImportOptions{Format: "xlsx"}, code: "bad_format"},
		"nothing":                {r: strings.NewReader(""), code: "empty_import"},
		"header alone":           {r: strings.NewReader("id\n"), code: "empty_import"},
		"broken off":             {r: io.MultiReader(strings.NewReader("a\nb\n"), iotest.ErrReader(broken)), code: "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := c.opt
			opt.Key, opt.Of, opt.IDs = testKey(t, "k1"), Device, normalizer(t, false)
			_, content, err := Import(c.r, opt)
			if err == nil || content != nil || fault.CodeOf(err) != c.code {
				t.Errorf("got %v", err)
			}
			if c.code == "internal" && !errors.Is(err, broken) {
				t.Errorf("the cause is lost: %v", err)
			}
		})
	}
}

func TestImportKeepsTheFirst100Problems(t *testing.T) {
	t.Parallel()
	secret := "secret\x00id"
	opt := importOptions(t)
	opt.MaxBad = 249
	text := "good\n" + strings.Repeat(secret+"\n", 250)
	report, content, err := Import(strings.NewReader(text), opt)
	if fault.CodeOf(err) != "bad_lines" || content != nil {
		t.Fatalf("got %v", err)
	}
	if report.Bad != 250 || report.Lines != 251 || len(report.Problems) != 100 || report.Problems[99].Line != 101 {
		t.Errorf("%d bad of %d lines, %d problems", report.Bad, report.Lines, len(report.Problems))
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error("the error repeats ids")
	}
	opt.MaxBad = 250
	if _, content, err = Import(strings.NewReader(text), opt); err != nil || content.Len() != 1 {
		t.Errorf("within the limit: %v", err)
	}
}

// A line of 512 MB costs no more memory than a short one.
func TestImportReadsLongLinesInConstantMemory(t *testing.T) {
	var before, after runtime.MemStats
	long := io.LimitReader(endless('x'), 512<<20)
	runtime.ReadMemStats(&before)
	opt := importOptions(t)
	opt.MaxBad = 1
	_, content, err := Import(io.MultiReader(strings.NewReader("a\n"), long, strings.NewReader("\nb\n")), opt)
	if err != nil || content.Len() != 2 {
		t.Fatalf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 32<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	_, _, err = Import(endless('x'), ImportOptions{Key: opt.Key, Of: Device, IDs: opt.IDs, MaxBytes: 64 << 20})
	if fault.CodeOf(err) != "too_large" {
		t.Errorf("a line without end: %v", err)
	}
}

type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// A dry run is an import whose Content nobody stores.
func TestImportComparesWithTheListBefore(t *testing.T) {
	t.Parallel()
	old := contentOf(t, Device, numbered("d-", 20_000))
	rehashed, err := Build(testKey(t, "k2"), Device, numbered("d-", 20_000))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old                       *Content
		text                      string
		added, removed, unchanged int
	}{
		"the same":       {old, lines(numbered("d-", 20_000)).String(), 0, 0, 20_000},
		"one more":       {old, lines(numbered("d-", 20_001)).String(), 1, 0, 20_000},
		"one less":       {old, lines(numbered("d-", 19_999)).String(), 0, 1, 19_999},
		"all others":     {old, lines(numbered("e-", 10_000)).String(), 10_000, 20_000, 0},
		"nothing":        {old, "", 0, 20_000, 0},
		"after rotation": {rehashed, lines(numbered("d-", 19_000)).String() + "new\n", 1, 1_000, 19_000},
	} {
		opt := importOptions(t)
		opt.Old, opt.AllowEmpty = stored(c.old), true
		report, content, err := Import(strings.NewReader(c.text), opt)
		if err != nil {
			t.Fatal(err)
		}
		if report.Added != c.added || report.Removed != c.removed || report.Unchanged != c.unchanged {
			t.Errorf("%s: %d added, %d removed, %d unchanged", name, report.Added, report.Removed, report.Unchanged)
		}
		if name == "the same" && string(content.Index().Bytes()) != string(old.Index().Bytes()) {
			t.Error("the same ids make another content")
		}
	}
}

// A list that was split finer keeps its bits, so that its chunks can stay.
func TestImportKeepsTheBitsOfTheListBefore(t *testing.T) {
	t.Parallel()
	old := newBlobStore(contentOf(t, Device, numbered("d-", 4_097)))
	remove := slices.Collect(numbered("d-", 200))
	old.patch(t, nil, remove)
	opt := importOptions(t)
	opt.Old = old.stored(t)
	_, content, err := Import(lines(numbered("d-", 4_000)), opt)
	if err != nil {
		t.Fatal(err)
	}
	if got, fresh := content.Index().Bits, chunkMean.bits(4_000, -1); got != old.index.Bits || got == fresh {
		t.Errorf("%d bits, before %d, a new list has %d", got, old.index.Bits, fresh)
	}
}

func TestImportChecksItsOptions(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*ImportOptions){
		"no key": func(o *ImportOptions) { o.Key = Key{} }, "no kind": func(o *ImportOptions) { o.Of = "" },
		"no normalizer": func(o *ImportOptions) { o.IDs = nil },
	} {
		opt := importOptions(t)
		spoil(&opt)
		if _, _, err := Import(strings.NewReader("a\n"), opt); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzImport(f *testing.F) {
	for _, text := range []string{
		"a\nb\n", "\ufeffu1 \r\n\r\n", "id,x\n\"a\",\"b \"\"c\"\"\"\n", "id\na\x00\n", "\"a\n", "a,b\n", "\xff\xfe", ",\n,", "id,id",
	} {
		f.Add([]byte(text), "")
	}
	f.Add([]byte("x,y\n1,2\n"), "y")
	f.Add([]byte(" "), "0")
	f.Fuzz(func(t *testing.T, data []byte, column string) {
		opt := importOptions(t)
		opt.Column, opt.MaxBad, opt.AllowEmpty = column, len(data)+1, true
		report, c, err := Import(strings.NewReader(string(data)), opt)
		if err != nil {
			if c != nil {
				t.Error("an error and a content")
			}
			return
		}
		header := report.Lines - report.Blank - report.Bad - report.Duplicates - report.IDs
		if header != 0 && (header != 1 || report.Format != CSV) {
			t.Errorf("the lines do not add up: %+v", report)
		}
		for _, id := range idsOf(t, c) {
			if normal, why := opt.IDs.Normalize(id); normal != id || why != Present {
				t.Errorf("%q is no normal form", id)
			}
		}
	})
}
