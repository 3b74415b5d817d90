package client_test

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"dispatch.example/dispatch/client"
)

func TestNewNamesEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Options{Suffixes: []string{"com"}, Bootstrap: []string{"ftp://x"}})
	if err == nil {
		t.Fatal("New accepted nothing at all")
	}
	for _, part := range []string{"App is required", "Keys is required", "Suffixes: \"com\"", "BuiltIn \"\"", "\"ftp://x\" must be https", "at least two hosts"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q:\n%v", part, err)
		}
	}
}

func TestNewRefusesUnsafeOptions(t *testing.T) {
	t.Parallel()
	type row struct {
		want   string
		change func(*client.Options)
	}
	for name, row := range map[string]row{
		"no app":                {"App is required", func(o *client.Options) { o.App = "" }},
		"line feed in the app":  {"App is required", func(o *client.Options) { o.App = "a\nb" }},
		"no keys":               {"Keys is required", func(o *client.Options) { o.Keys = nil }},
		"short key":             {"32 bytes", func(o *client.Options) { o.Keys["k1"] = ed25519.PublicKey{1} }},
		"comma in a key id":     {"without commas", func(o *client.Options) { o.Keys["a,b"] = publicKey("k1") }},
		"keys and unsigned":     {"contradicts Keys", func(o *client.Options) { o.AllowUnsigned = true }},
		"no deployment":         {"Deployment is required", func(o *client.Options) { o.Deployment = "" }},
		"no suffixes":           {"Suffixes is required", func(o *client.Options) { o.Suffixes = nil }},
		"empty suffix":          {"Suffixes", func(o *client.Options) { o.Suffixes = append(o.Suffixes, "") }},
		"suffix with a dot":     {"Suffixes", func(o *client.Options) { o.Suffixes = []string{".bank.example"} }},
		"suffix of one label":   {"Suffixes", func(o *client.Options) { o.Suffixes = append(o.Suffixes, "example") }},
		"upper-case suffix":     {"Suffixes", func(o *client.Options) { o.Suffixes = append(o.Suffixes, "Bank.example") }},
		"foreign built-in":      {"BuiltIn", func(o *client.Options) { o.BuiltIn = "evil.com" }},
		"no built-in":           {"BuiltIn", func(o *client.Options) { o.BuiltIn = "" }},
		"one host":              {"at least two", func(o *client.Options) { o.Bootstrap = o.Bootstrap[:1] }},
		"the same host twice":   {"named twice", func(o *client.Options) { o.Bootstrap[1] = o.Bootstrap[0] + "/x" }},
		"plain http":            {"must be https", func(o *client.Options) { o.Bootstrap[0] = "http://wap.bank.example" }},
		"name like loopback":    {"must be https", func(o *client.Options) { o.Bootstrap[0] = "http://localhost.evil.com" }},
		"host without a scheme": {"https://HOST", func(o *client.Options) { o.Bootstrap[0] = "wap.bank.example" }},
		"user in the address":   {"https://HOST", func(o *client.Options) { o.Bootstrap[0] = "https://u:p@wap.bank.example" }},
		"query in the address":  {"https://HOST", func(o *client.Options) { o.Bootstrap[0] = "https://wap.bank.example?x=1" }},
		"large attributes": {"the limit is 2048", func(o *client.Options) {
			o.Attrs = map[string]string{"a": strings.Repeat("x", 3000)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			opt := options()
			row.change(&opt)
			c, err := client.New(opt)
			if err == nil || c != nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("New = %v, %v, want an error with %q", c, err, row.want)
			}
		})
	}
}

func TestNewAcceptsLoopbackWithoutTLS(t *testing.T) {
	t.Parallel()
	opt := options()
	opt.Bootstrap = []string{"http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost:8080", "https://wap.bank.example/dispatch/"}
	newClient(t, opt)
}

func TestParseKeysTakesPublicRecordKeysOnly(t *testing.T) {
	t.Parallel()
	keys, err := client.ParseKeys([]byte(keySet("k1", "k2")))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "keys", keys, options().Keys)

	x := encode(publicKey("k1"))
	okp := `{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"` + x + `"}`
	mixed := `{"keys":[` + okp + `,{"kty":"EC","crv":"P-256","kid":"e"},{"kty":"oct","kid":"o","k":"AA"},` +
		`{"kty":"OKP","crv":"X25519","kid":"x","x":"` + x + `"},{"kty":"OKP","crv":"Ed25519","kid":"publisher-1","x":"` + x + `"}]}`
	keys, err = client.ParseKeys([]byte(mixed))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "keys of a mixed set", len(keys), 1)

	for name, row := range map[string]struct{ set, want string }{
		"no JSON":     {"k1", "read key set"},
		"no keys":     {`{"keys":[]}`, "no record key"},
		"private key": {`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"` + x + `","d":"AA"}]}`, "private"},
		"short key":   {`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"AA"}]}`, "32 bytes"},
		"padded key":  {`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"` + x + `="}]}`, "32 bytes"},
		"no id":       {`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + x + `"}]}`, "must have a kid"},
		"id twice":    {`{"keys":[` + okp + `,` + okp + `]}`, "stands twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.ParseKeys([]byte(row.set))
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("err = %v, want one with %q", err, row.want)
			}
		})
	}
}
