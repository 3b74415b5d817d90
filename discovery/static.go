package discovery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"dispatch.example/dispatch/internal/fault"
)

const (
	// readEvery is how often the file is read. It is small, and reading needs no
	// support of the file system, unlike notifications.
	readEvery = time.Second
	// settle is how long a changed file must stay as it is, so that a write that is
	// under way is not taken for its result.
	settle  = 200 * time.Millisecond
	maxFile = 4 << 20
)

// static is a Source that reads a file. The file is the operator's: what is in it
// is believed at once, however much it removes, and nobody registers in it.
type static struct {
	path    string
	metrics *metrics
}

// openStatic reads the file once, so that a wrong one stops the start.
func openStatic(path string, opt Options) (Catalog, error) {
	if path == "" {
		return nil, fault.New(fault.Invalid, "invalid_discovery", "static discovery names no file").WithHint("static:FILE")
	}
	if opt.Dialect != nil {
		return nil, fault.New(fault.Invalid, "invalid_discovery", "static discovery takes no dialect").WithHint("write the coordinates in " + path)
	}
	m, err := newMetrics("static", opt.Registry)
	if err != nil {
		return nil, fmt.Errorf("open static discovery: %w", err)
	}
	s := &static{path: path, metrics: m}
	if _, err := s.read(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *static) Name() string { return "static" }

func (s *static) Close() {}

// Watch reads the file again and again. Each watch does so for itself: a few reads
// a second of a small file cost less than shared state.
func (s *static) Watch(ctx context.Context, service string, out Observer) error {
	if err := checkService(service); err != nil {
		return err
	}
	pub := newPublisher(s.Name(), service, out, s.metrics)
	var used []byte
	for ctx.Err() == nil {
		text, err := s.text()
		if err == nil && (used == nil || !bytes.Equal(text, used)) {
			if !pause(ctx, settle) {
				break
			}
			var again []byte
			if again, err = s.text(); err == nil && !bytes.Equal(text, again) {
				continue // somebody is writing
			}
			var all []Instance
			if all, err = parseFile(s.path, text); err == nil {
				used = text
				pub.publish(Snapshot{Instances: slices.DeleteFunc(all, func(in Instance) bool { return in.Service != service })})
			}
		}
		if err != nil {
			s.metrics.problem(badFile)
		}
		out.Checked(err)
		pause(ctx, readEvery)
	}
	return nil
}

// Register looks whether the file names the instance.
func (s *static) Register(_ context.Context, in Instance) (Lease, error) {
	all, err := s.read()
	if err != nil {
		return nil, err
	}
	for _, listed := range all {
		if listed.Service == in.Service && listed.Address == in.Address && listed.Coordinates == in.Coordinates {
			return listedLease{}, nil
		}
	}
	return nil, fault.New(fault.NotFound, "not_listed", "%s does not name %s at %s with these coordinates", s.path, in.Service, in.Address).
		WithHint(fmt.Sprintf("add to its instances: {service: %q, address: %q, cluster: %q, region: %q, env: %q, version: %q}",
			in.Service, in.Address, in.Cluster, in.Region, in.Env, in.Version))
}

// Services are those in the file.
func (s *static) Services(context.Context) ([]string, error) {
	all, err := s.read()
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, in := range all {
		names = append(names, in.Service)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// listedLease is that of an instance in the file: it lives as long as its line.
type listedLease struct{}

func (listedLease) Renew(context.Context) error   { return nil }
func (listedLease) Release(context.Context) error { return nil }

func (s *static) read() ([]Instance, error) {
	text, err := s.text()
	if err != nil {
		return nil, err
	}
	return parseFile(s.path, text)
}

func (s *static) text() ([]byte, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("read instances: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read instances: %w", err)
	}
	if len(text) > maxFile {
		return nil, fault.New(fault.TooLarge, "instances_too_large", "%s has more than %d bytes", s.path, maxFile)
	}
	return text, nil
}
