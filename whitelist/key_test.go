package whitelist

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// The first vectors of the SipHash reference implementation (vectors_sip128 in
// vectors.h): key 00..0f, input 00 01 02 …. An empty kind leaves 0x00 ++ id.
func TestHashIsPublishedSipHash128(t *testing.T) {
	t.Parallel()
	key, err := NewKey("reference", []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct{ id, want string }{
		{"", "da87c1d86b99af44347659119b22fc45"},
		{"\x01", "8177228da4a45dc7fca38bdef60affe4"},
		{"\x01\x02", "9c70b60c5267a94e5f33b6b02985ed51"},
		{"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e", "5493e99933b0a8117e08ec0f97cfc3d9"},
	} {
		if got := key.Hash("", v.id).String(); got != v.want {
			t.Errorf("input of %d bytes: %s, want %s", len(v.id)+1, got, v.want)
		}
	}
}

func TestHashSeparatesKindsKeysAndIDs(t *testing.T) {
	t.Parallel()
	k1, k2 := testKey(t, "k1"), testKey(t, "k2")
	seen := map[Hash]string{}
	for name, h := range map[string]Hash{
		"device a": k1.Hash(Device, "a"), "user a": k1.Hash(User, "a"), "other key": k2.Hash(Device, "a"),
		"device A": k1.Hash(Device, "A"), "empty": k1.Hash(Device, ""), "long": k1.Hash(Device, strings.Repeat("a", 1_000)),
	} {
		if other, twice := seen[h]; twice {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[h] = name
	}
}

func TestKeyRefusesBadSecrets(t *testing.T) {
	t.Parallel()
	good := []byte("0123456789abcdef")
	for name, made := range map[string]func() (Key, error){
		"no id":     func() (Key, error) { return NewKey("", good) },
		"short":     func() (Key, error) { return NewKey("k", good[:15]) },
		"long":      func() (Key, error) { return NewKey("k", append(good, 0)) },
		"all zeros": func() (Key, error) { return NewKey("k", make([]byte, KeySize)) },
	} {
		if _, err := made(); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestKeyNeverShowsItsSecret(t *testing.T) {
	t.Parallel()
	key, err := NewKey("k7", bytes.Repeat([]byte{0xAB}, KeySize))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("key", "key", key)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("key", "key", key)
	js, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%v %+v %#v %s %x %q %v", key, key, key, js, key, key, []Key{key}) + log.String()
	for _, secret := range []string{"abab", "ABAB", "12370169555311111083"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s shows %s", all, secret)
		}
	}
	if !strings.Contains(all, "k7") {
		t.Errorf("%s does not show the id", all)
	}
}

func TestHashDoesNotAllocate(t *testing.T) {
	key := testKey(t, "k1")
	id := strings.Repeat("a", MaxID)
	if n := testing.AllocsPerRun(100, func() { key.Hash(Device, id) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
