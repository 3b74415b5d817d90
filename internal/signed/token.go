package signed

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
)

// tokenSize is the least number of random bytes in a token.
const tokenSize = 32

// NewToken makes a token that nodes of one deployment show each other: 32 random
// bytes as base64url.
func NewToken() string {
	for {
		secret := make([]byte, tokenSize)
		_, _ = rand.Read(secret) // never fails, see crypto/rand
		if token := base64.RawURLEncoding.EncodeToString(secret); checkToken(token) == nil {
			return token
		}
	}
}

// ReadTokens reads a token file: the current token on the first line and, after a
// rotation, the previous one on the second. It refuses what ReadKeys refuses of a
// file, and a token that is short, text, a pattern or made of words.
func ReadTokens(path string) ([]string, error) {
	data, err := readSecretFile(path)
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	tokens := strings.Fields(string(data))
	if len(tokens) == 0 || len(tokens) > 2 {
		return nil, fmt.Errorf("read token %s: %w: %d tokens, there must be a current one and at most one previous", path, ErrKey, len(tokens))
	}
	for _, token := range tokens {
		if err := checkToken(token); err != nil {
			return nil, fmt.Errorf("read token %s: %w", path, err)
		}
	}
	return tokens, nil
}

// WriteTokens writes a token file with mode 0600, current token first.
func WriteTokens(path string, tokens ...string) error {
	if err := replaceFile(path, []byte(strings.Join(tokens, "\n")+"\n")); err != nil {
		return fmt.Errorf("write token %s: %w", path, err)
	}
	return nil
}

// knownWords are what people write where a secret belongs. One of them stands in
// fewer than one random token in a million.
var knownWords = [...]string{"changeme", "change-me", "change_me", "password", "secret", "example", "default", "dispatch"}

// checkToken accepts base64, with either alphabet, or hex.
func checkToken(token string) error {
	for _, word := range knownWords {
		if strings.Contains(strings.ToLower(token), word) {
			return fmt.Errorf("%w: the token holds the word %s; make a random one", ErrKey, word)
		}
	}
	plain := strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(token), "=")
	secret, err := base64.RawURLEncoding.DecodeString(plain)
	if err != nil {
		return fmt.Errorf("%w: the token is not base64 of random bytes", ErrKey)
	}
	if len(secret) < tokenSize {
		return fmt.Errorf("%w: the token has %d bytes, it must be at least %d random ones", ErrKey, len(secret), tokenSize)
	}
	return checkSecret(secret)
}
