package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
)

const (
	maxBody   = 4 << 10  // bytes that are read of an answer
	maxHeader = 16 << 10 // bytes of headers: what browsers take comes with less
	longest   = 200      // characters of a problem
)

// request asks the host as an app would. Any answer below 500 is one: a login page,
// a redirect and a 404 all come from a server that is there. The body is read for
// its speed and thrown away.
func (p *Prober) request(ctx context.Context, host string) (shot Shot) {
	resp, err := p.ask(ctx, host, &shot)
	if err == nil {
		_, err = io.CopyN(io.Discard, resp.Body, maxBody)
		_ = resp.Body.Close()
		if errors.Is(err, io.EOF) {
			err = ctx.Err() // a connection that the end of time closed ends, too
		}
	}
	switch {
	case err != nil:
		shot.Problem = problemOf(err)
	case resp.StatusCode >= http.StatusInternalServerError:
		shot.Problem = fmt.Sprintf("status: %d", resp.StatusCode)
	default:
		shot.OK = true
	}
	return shot
}

// ask gets the head of the answer, over a connection of its own: one that is kept
// would say nothing about the next one's name, address and certificate.
func (p *Prober) ask(ctx context.Context, host string, shot *Shot) (*http.Response, error) {
	addrs, err := p.opt.Lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, noName{host}
	}
	dialer := &net.Dialer{Control: p.networks.control}
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var failed error
			for _, addr := range addrs {
				raw, err := dialer.DialContext(ctx, network, addr.String())
				if err != nil {
					failed = errors.Join(failed, err)
					continue
				}
				conn := tls.Client(raw, &tls.Config{ServerName: host, RootCAs: p.opt.RootCAs, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Time: p.opt.Now})
				err = conn.HandshakeContext(ctx)
				shot.see(conn.ConnectionState(), err)
				if err != nil {
					_ = raw.Close() // the handshake says what is wrong
					return nil, handshake{err}
				}
				return conn, nil
			}
			return nil, failed
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+p.opt.Path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", host, err)
	}
	req.Header.Set("User-Agent", "dispatch-probe")
	return transport.RoundTrip(req) // unlike a client it follows nothing and keeps no cookie
}

// see notes the end of the certificate, also of one that was refused.
func (s *Shot) see(state tls.ConnectionState, err error) {
	certificates := state.PeerCertificates
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		certificates = refused.UnverifiedCertificates
	}
	if len(certificates) > 0 {
		s.Expires = certificates[0].NotAfter
	}
}

// handshake is a failure of TLS.
type handshake struct{ error }

// Unwrap is the cause.
func (h handshake) Unwrap() error { return h.error }

// noName is a host without an address.
type noName struct{ host string }

// Error says so.
func (n noName) Error() string { return n.host + " has no address" }

// problemOf says what went wrong in a word of ours and a sentence.
func problemOf(err error) string {
	word := "http"
	switch {
	case is[dangling](err):
		word = DanglingCNAME
	case is[blocked](err):
		word = "address"
		if b, ok := errors.AsType[blocked](err); ok {
			err = b.error
		}
	case is[noName](err), is[noAnswer](err):
		word = "dns"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout: no answer in time"
	case is[handshake](err):
		word = "tls"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connect: refused"
	case is[*net.OpError](err):
		word = "connect"
	}
	text := []rune(strings.Join(strings.Fields(word+": "+err.Error()), " "))
	if len(text) > longest {
		text = append(text[:longest], '…')
	}
	return string(text)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
