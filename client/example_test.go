package client_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"dispatch.example/dispatch/client"
)

// The examples talk to two hosts in memory; an app leaves Transport out.
func exampleHosts() (client.Options, *bank) {
	b := both(func(w http.ResponseWriter, r *http.Request) { says(signedAt(time.Now(), claims()))(w, r) })
	return b.options(), b
}

// open is the program of README.md.
func open(recordKeys []byte, folder string, transport http.RoundTripper) (*client.Client, error) {
	keys, err := client.ParseKeys(recordKeys) // embedded: what dispatch keys export printed
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{
		App:        "mobile",
		Deployment: "bank",
		Bootstrap:  []string{"https://wap1.bank.example", "https://wap2.bank.example"},
		Keys:       keys,
		Suffixes:   []string{"bank.example", "a.com.cn", "b.com.cn"},
		BuiltIn:    "wap.bank.example",
		DeviceID:   "d-1001",
		Store:      client.FileStore{Path: filepath.Join(folder, "route.json")},
		Transport:  transport,
	})
}

func Example() {
	folder, err := os.MkdirTemp("", "app")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	_, transport := exampleHosts()

	c, err := open([]byte(keySet("k1", "k2")), folder, transport)
	if err != nil {
		fmt.Println(err) // a mistake in the options, never the network
		return
	}
	defer c.Close()

	r := c.Route(context.Background())
	fmt.Println(r.Domain, r.Region, r.Source)
	// Output: wapabst.a.com.cn sh fresh
}

func ExampleNew() {
	_, err := client.New(client.Options{App: "mobile", Deployment: "bank", Suffixes: []string{"bank.example"}, BuiltIn: "wap.bank.example"})
	fmt.Println(err)
	// Output:
	// options: Keys is required: pin the record keys of dispatch keys export, or set AllowUnsigned for a development server
	// options: Bootstrap needs at least two hosts, so that one can fail
}

func ExampleParseKeys() {
	exported := []byte(`{"keys":[{"use":"sig","kty":"OKP","kid":"record-kPrK_qmxVWaYVA9w","crv":"Ed25519","alg":"EdDSA",
		"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)
	keys, err := client.ParseKeys(exported)
	fmt.Println(len(keys), len(keys["record-kPrK_qmxVWaYVA9w"]), err)
	// Output: 1 32 <nil>
}

func ExampleClient_Route() {
	opt, b := exampleHosts()
	c, err := client.New(opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	fmt.Println(c.Route(context.Background()).Source)
	fmt.Println(c.Route(context.Background()).Source) // within the ttl: no request

	b.set(status(http.StatusServiceUnavailable), wap1, wap2)
	r := c.Refresh(context.Background())
	fmt.Println(r.Domain, r.Source, r.Reason)
	// Output:
	// fresh
	// cached
	// wapabst.a.com.cn cached status
}

func ExampleClient_Route_builtIn() {
	opt := options()
	opt.Transport = both(breaks) // nothing answers, and nothing was ever stored
	c, err := client.New(opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	r := c.Route(context.Background())
	fmt.Println(r.Domain, r.Source, r.Reason)
	// Output: wap.bank.example built_in unreachable
}

func ExampleClient_Refresh() {
	opt, b := exampleHosts()
	c, err := client.New(opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	c.Route(context.Background())
	// No domain of the route can be reached: ask again before the ttl is over.
	moved := claims().with("release", 413).with("region", "hf").with("domain", "wapcdst.b.com.cn").with("alternates", []string{})
	b.set(says(signedAt(time.Now(), moved)), wap1, wap2)
	fmt.Println(c.Refresh(context.Background()).Domain)
	// Output: wapcdst.b.com.cn
}

func ExampleClient_SetUser() {
	opt, b := exampleHosts()
	c, err := client.New(opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	before := c.Route(context.Background())
	c.SetUser("customer-7")
	fmt.Println(c.Route(context.Background()).Domain == before.Domain)
	c.Refresh(context.Background())
	fmt.Println(b.last().Header.Get("X-User-Id"), b.last().Header.Get("X-Session-Token"))
	// Output:
	// true
	// customer-7 c2Vzc2lvbg
}

func ExampleClient_Close() {
	opt, _ := exampleHosts()
	c, err := client.New(opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	c.Close()
	r := c.Route(context.Background())
	fmt.Println(r.Domain, r.Reason)
	// Output: wap.bank.example closed
}

func ExampleRoute_Domains() {
	opt, _ := exampleHosts()
	c, err := client.New(opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	for _, domain := range c.Route(context.Background()).Domains() {
		fmt.Println("try", domain)
	}
	// Output:
	// try wapabst.a.com.cn
	// try wapcdst.b.com.cn
	// try wap.bank.example
}

func ExampleFileStore() {
	dir, err := os.MkdirTemp("", "app")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	for range 2 { // two starts of the app
		opt, _ := exampleHosts()
		opt.Store = client.FileStore{Path: filepath.Join(dir, "route.json")}
		c, err := client.New(opt)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(c.Route(context.Background()).Source)
		c.Close()
	}
	// Output:
	// fresh
	// cached
}
