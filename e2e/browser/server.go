package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/chromedp/chromedp"

	"dispatch.example/dispatch/internal/testenv"
)

// Environment stands in what is typed to confirm.
const Environment = "prod"

// Server is one dispatch process with all roles.
type Server struct {
	*testenv.Control
	Public, Console string // origins
	Fleet           string // of the listener for other nodes and for callers
	Data            string // its folder
	Token           string // of the administrator
	Password        string // of the account admin, for its first sign-in
}

// Serve starts the program with these flags, with what it writes in dir.
func Serve(ctx context.Context, program, dir string, flags ...string) (*Server, error) {
	var addr [4]string
	for i := range addr {
		var err error
		if addr[i], err = testenv.FreeAddr(); err != nil {
			return nil, err
		}
	}
	s := &Server{Public: "http://" + addr[0], Console: "http://" + addr[1], Fleet: "http://" + addr[3], Data: filepath.Join(dir, "data")}
	s.Control = &testenv.Control{Name: "dispatch", Log: filepath.Join(dir, "log"), Up: testenv.Answers(s.Console + "/login"),
		Args: append([]string{program, "serve", "--data", s.Data, "--env", Environment, "--replica-id", "node-1",
			"--listen", addr[0], "--admin-listen", addr[1], "--ops-listen", addr[2], "--fleet-listen", addr[3]}, flags...)}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	return s, s.greeted()
}

var (
	saysPassword = regexp.MustCompile(`account\s+admin\s+password (\S+)`)
	saysToken    = regexp.MustCompile(`token\s+(adm_\S+|\S+)\s+\(administrator`)
)

// greeted reads what the program prints once.
func (s *Server) greeted() error {
	text, err := os.ReadFile(s.Log)
	if err != nil {
		return err
	}
	password, token := saysPassword.FindSubmatch(text), saysToken.FindSubmatch(text)
	if password == nil || token == nil {
		return fmt.Errorf("the program printed no password and no token:\n%s", text)
	}
	s.Password, s.Token = string(password[1]), string(token[1])
	return nil
}

// Refusal is what the API says when it does not do something.
type Refusal struct {
	Status             int
	Code, Detail, Hint string
	Data               json.RawMessage
}

// Error is the refusal in one line.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%d %s: %s (%s)", r.Status, r.Code, r.Detail, r.Hint)
}

// Call sends JSON to the API as the holder of the token, and reads the answer into
// out, unless that is nil. headers are names and values. A refusal is a *Refusal.
func (s *Server) Call(ctx context.Context, token, call string, body, out any, headers ...string) error {
	var method, path string
	if _, err := fmt.Sscan(call, &method, &path); err != nil {
		return fmt.Errorf("%q is not METHOD PATH: %w", call, err)
	}
	text, raw := body.([]byte)
	if !raw && body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.Console+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	if text, err = io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		r := &Refusal{Status: resp.StatusCode, Detail: string(text)}
		_ = json.Unmarshal(text, r) // what is no problem document is shown as it is
		return fmt.Errorf("%s: %w", call, r)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// Domain is what /route answers for the query.
func (s *Server) Domain(ctx context.Context, query string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Public+"/route?"+query, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	var answer struct{ Domain string }
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer.Domain, err
}

// End ends the process.
func (s *Server) End() error { return s.Stop(10 * time.Second) }

// Chosen is the password that everybody chooses at the first sign-in.
const Chosen = "a long enough password"

// FirstSignIn signs in with a one-time password and chooses another.
func (t *Tab) FirstSignIn(s *Server, login, once string) error {
	if err := t.SignIn(s, login, once); err != nil {
		return fmt.Errorf("sign in as %s: %w", login, err)
	}
	const form = `form[action="/account/password"] `
	return t.Take(chromedp.Navigate(s.Console+"/account"), // where an account that must change it is led anyway
		chromedp.SendKeys(chromedp.CSS(form+`[name=password]`), once),
		chromedp.SendKeys(chromedp.CSS(form+`[name=new]`), Chosen),
		t.Go(form+"button"))
}

// SignIn types a login and a password into the page of signing in.
func (t *Tab) SignIn(s *Server, login, password string) error {
	return t.Take(chromedp.Navigate(s.Console+"/login"),
		chromedp.SendKeys(chromedp.CSS("[name=login]"), login),
		chromedp.SendKeys(chromedp.CSS("[name=password]"), password),
		t.Go("main form button"))
}
