package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/config.md")

// command runs one command to its end.
func command(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	exit = run(t.Context(), args, &out, &log)
	return exit, out.String(), log.String()
}

func TestTheManualIsTheHelpText(t *testing.T) {
	exit, help, _ := command(t, "serve", "-h")
	if exit != 0 || help == "" {
		t.Fatalf("serve -h ended with %d and printed %q", exit, help)
	}
	want := "# Configuration\n\nThis is what `dispatch serve -h` prints. Every flag is also an environment variable, flags win.\n" +
		"Secrets come from files or the environment. Lists are separated by commas.\n\n```\n" + help + "```\n"
	if *update {
		if err := os.WriteFile("../../docs/config.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("../../docs/config.md")
	if err != nil || string(got) != want {
		t.Errorf("docs/config.md is not what serve -h prints (%v); go test ./cmd/dispatch -update", err)
	}
}

func TestWrongFlagsAreNamedAllAtOnce(t *testing.T) {
	exit, _, stderr := command(t, "serve", "--trusted-proxies", "10.0.0.0/8,nonsense", "--db", "oracle:x", "--decision-log-size", "2GiB")
	if exit != 2 {
		t.Errorf("exit %d, want 2", exit)
	}
	for _, want := range []string{`"nonsense" is not an address or CIDR`, "--db: must be sqlite:FILE or mysql:DSN", "--allowed-suffixes: is required"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is missing from:\n%s", want, stderr)
		}
	}
}

func TestFourEyesCannotBeOffWithMySQL(t *testing.T) {
	exit, _, stderr := command(t, "serve", "--db", "mysql:u:p@tcp(127.0.0.1:1)/d", "--four-eyes", "off", "--allowed-suffixes", "bank.example")
	if exit != 2 || !strings.Contains(stderr, "two people approve every host") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
}

func TestFlagsComeFromTheEnvironmentToo(t *testing.T) {
	t.Setenv("DISPATCH_DB", "oracle:x")
	t.Setenv("DISPATCH_ALLOWED_SUFFIXES", "bank.example")
	exit, _, stderr := command(t, "serve")
	if exit != 2 || !strings.Contains(stderr, "--db: must be") || strings.Contains(stderr, "--allowed-suffixes") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
}

func TestMySQLNeedsKeysThatExist(t *testing.T) {
	exit, _, stderr := command(t, "serve", "--data", t.TempDir(), "--db", "mysql:u:p@tcp(127.0.0.1:1)/d", "--allowed-suffixes", "bank.example")
	for _, want := range []string{"--publisher-key-file", "--record-key-file", "--session-key-file", "--list-key-file", "--list-seal-key-file", "--fleet-token-file", "dispatch keys new"} {
		if exit != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, want 1 and %q in:\n%s", exit, want, stderr)
		}
	}
	if strings.Contains(stderr, "u:p@") {
		t.Errorf("the database password is shown: %s", stderr)
	}
}

func TestAnUnknownVariableIsNoSetting(t *testing.T) {
	t.Setenv("DISPATCH_ALLOWED_SUFIXES", "bank.example")
	exit, _, stderr := command(t, "serve")
	if exit != 2 || !strings.Contains(stderr, "$DISPATCH_ALLOWED_SUFIXES: no flag reads it") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
}

func TestSizesNeedAUnit(t *testing.T) {
	for text, ok := range map[string]bool{"100MiB": true, "2GB": true, "100": false, "1kB": false, "much": false, "-1MiB": false} {
		if err := new(size).UnmarshalText([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A table that cannot be read hides no mistake of the document.
func TestCheckReadsTablesToo(t *testing.T) {
	dir := t.TempDir()
	document, err := os.ReadFile("../../examples/mobile-bank.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"bank.yaml": strings.Replace(string(document), "session_ttl: 30m", "session_ttl: 1s", 1),
		"cn-prefixes.csv": "192.0.2.0/24,sh\n192.0.2.7/24,hf\nnonsense\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, stdout, _ := command(t, "check", filepath.Join(dir, "bank.yaml"))
	for _, want := range []string{"cn-prefixes.csv:2:", "cn-prefixes.csv:3:", "session_ttl"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing from:\n%s", want, stdout)
		}
	}
}

func TestCheckNamesEveryMistakeWithItsLine(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	text := "apps:\n  - key: mobile\n    fallbak: wap.bank.example\n    session_ttl: 30\n    regions: []\n    otherwise: {region: sh}\n"
	if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	exit, stdout, stderr := command(t, "check", bad, "../../examples/mobile-bank.yaml")
	if exit != 1 || !strings.Contains(stderr, "1 of 2 files have mistakes") {
		t.Errorf("exit %d, want 1: %s", exit, stderr)
	}
	for _, want := range []string{bad + ":3:", "fallback", bad + ":4:", "mobile-bank.yaml: ok"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing from:\n%s", want, stdout)
		}
	}
}

func TestKeysAreMadeOnceAndExportedWithoutSecrets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if exit, stdout, stderr := command(t, "keys", "new", dir); exit != 0 || strings.Count(stdout, "\n") != 6 {
		t.Fatalf("keys new: %d %s %s", exit, stdout, stderr)
	}
	if exit, _, stderr := command(t, "keys", "new", dir); exit != 1 || !strings.Contains(stderr, "exists") {
		t.Errorf("keys new over existing files: %d %s", exit, stderr)
	}
	exit, jwks, stderr := command(t, "keys", "export", "--publisher-key-file", filepath.Join(dir, "publisher.jwks"), "--record-key-file", filepath.Join(dir, "record.jwks"))
	if exit != 0 || strings.Count(jwks, `"kid"`) != 2 || strings.Contains(jwks, `"d"`) {
		t.Errorf("keys export: %d %s %s", exit, jwks, stderr)
	}
}

func TestVersionNamesTheProgram(t *testing.T) {
	if exit, stdout, stderr := command(t, "version"); exit != 0 || !strings.HasPrefix(stdout, "dispatch ") || !strings.Contains(stdout, "go1.") {
		t.Errorf("version: %d %q %s", exit, stdout, stderr)
	}
}

func TestMigrateMayRunTwice(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "d.db")
	if exit, stdout, stderr := command(t, "migrate", "--db", db); exit != 0 || stdout == "" {
		t.Errorf("migrate: %d %q %s", exit, stdout, stderr)
	}
	if exit, stdout, _ := command(t, "migrate", "--db", db); exit != 0 || stdout != "nothing to do\n" {
		t.Errorf("migrate again: %d %q", exit, stdout)
	}
}

func TestTheFirstAdministratorIsMadeOnce(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "d.db")
	if exit, _, stderr := command(t, "admin", "init", "--db", db); exit != 1 || !strings.Contains(stderr, "dispatch migrate") {
		t.Errorf("admin init on a mistyped name: %d %s", exit, stderr)
	}
	command(t, "migrate", "--db", db)
	if exit, stdout, stderr := command(t, "admin", "init", "--db", db); exit != 0 || !strings.HasPrefix(stdout, "dsp_adm_") {
		t.Errorf("admin init: %d %q %s", exit, stdout, stderr)
	}
	if exit, stdout, stderr := command(t, "admin", "init", "--db", db); exit != 1 || stdout != "" || !strings.Contains(stderr, "POST /api/v1/tokens") {
		t.Errorf("admin init again: %d %q %s", exit, stdout, stderr)
	}
}
