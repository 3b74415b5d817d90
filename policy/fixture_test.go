package policy

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/whitelist"
)

func ptr[T any](v T) *T { return &v }

// noon is the time of requests that do not care.
var noon = time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)

// region is an active region with one endpoint, KEY-main.
func region(key string, capacity int, failover ...string) domain.Region {
	return domain.Region{Key: key, Capacity: capacity, Failover: failover,
		Endpoints: []domain.Endpoint{{Key: key + "-main", Domain: key + ".bank.example"}}}
}

func regions() []domain.Region {
	return []domain.Region{region("sh", 60, "hf"), region("hf", 40, "sh"), region("gz", 0)}
}

// rules is an app with regions sh, hf and gz whose last step is sh.
func rules(policies ...Policy) Rules {
	return Rules{App: "mobile", Regions: regions(), Policies: policies, Otherwise: Action{Region: "sh"}}
}

func toRegion(key string) Action { return Action{Region: key} }

func share(region string, of int) Action { return Action{Share: &Share{Region: region, Of: &of}} }

func shareOf(region string, buckets ...[2]int) Action {
	return Action{Share: &Share{Region: region, Buckets: buckets}}
}

// split is pairs of region and of.
func split(parts ...any) Action {
	var a Action
	for i := 0; i < len(parts); i += 2 {
		a.Split = append(a.Split, Share{Region: parts[i].(string), Of: ptr(parts[i+1].(int))})
	}
	return a
}

func gray(of int) Policy { return Policy{Key: "gray", MatchAll: true, Then: share("hf", of)} }

func compile(tb testing.TB, r Rules, env Env) *Table {
	tb.Helper()
	table, err := Compile(r, env)
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// listIndex holds lists by "of/key".
func listIndex(tb testing.TB, lists map[string][]string) *whitelist.Index {
	tb.Helper()
	key, err := whitelist.NewKey("k1", []byte("0123456789abcdef"))
	if err != nil {
		tb.Fatal(err)
	}
	var all []whitelist.List
	for name, ids := range lists {
		of, listKey, _ := strings.Cut(name, "/")
		content, err := whitelist.Build(key, whitelist.Of(of), slices.Values(ids))
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, whitelist.List{Key: listKey, Of: whitelist.Of(of), Index: content.Index(), Chunk: content.Chunk})
	}
	index, err := new(whitelist.Index).With([]whitelist.Key{key}, all)
	if err != nil {
		tb.Fatal(err)
	}
	return index
}

func testKey(id string) SessionKey {
	return SessionKey{ID: id, Secret: bytes.Repeat([]byte(fmt.Sprintf("secret of %-6s", id)), 2)}
}

func sessionKeys(tb testing.TB, current string, previous ...string) *SessionKeys {
	tb.Helper()
	var old []SessionKey
	for _, id := range previous {
		old = append(old, testKey(id))
	}
	keys, err := NewSessionKeys(testKey(current), old...)
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// where is the key of the region a request is sent to, and why.
func where(t *Table, req Request) (region string, reason Reason) {
	if req.Now.IsZero() {
		req.Now = noon
	}
	d := t.Decide(&req)
	if d.Region < 0 {
		return "", d.Reason
	}
	return t.Regions()[d.Region].Key, d.Reason
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }
