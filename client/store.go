package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Store keeps a few kilobytes of opaque state between starts. The Client never calls it
// twice at once. It holds the session token, so only the app should be able to read it.
type Store interface {
	// Load returns what Save was last given, nil when there is nothing.
	Load() ([]byte, error)
	// Save replaces the state: after a crash Load finds the old one or the new one, whole.
	Save(state []byte) error
}

// FileStore keeps the state in one file, readable by its owner only.
type FileStore struct {
	Path string // its folder must exist
}

// Load reads the file.
func (f FileStore) Load() ([]byte, error) {
	state, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return state, err
}

// Save writes a new file beside the old one and renames it.
func (f FileStore) Save(state []byte) (err error) {
	dir := filepath.Dir(f.Path)
	tmp, err := os.CreateTemp(dir, filepath.Base(f.Path)+".*.tmp") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // best effort: the first error is the one to report
		}
	}()
	_, err = tmp.Write(state)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), f.Path); err != nil {
		return err
	}
	// Without this a power cut may bring the old file back, which is no worse than a lost
	// answer; systems that cannot sync a folder are therefore not an error.
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}

type memory struct {
	mu    sync.Mutex
	state []byte
}

func (m *memory) Load() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, nil
}

func (m *memory) Save(state []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = state
	return nil
}

// stateFormat is raised when an older client would misread the state; it then starts empty.
const stateFormat = 1

// state is what survives a restart.
type state struct {
	Format     int             `json:"format"`
	Deployment string          `json:"deployment"`
	App        string          `json:"app"`
	Answer     json.RawMessage `json:"answer,omitempty"` // as received; judged again when it is read
	Received   int64           `json:"received_ms,omitempty"`
	Marks      marks           `json:"marks,omitempty"`
	Fallbacks  map[Reason]int  `json:"fallbacks,omitempty"`
}

// load takes over the state that the last process left. Nothing in it is believed that a
// server could not have said: the stored answer passes parse again, under today's keys and
// suffixes. Marks of keys that are no longer pinned are dropped, and with them what a
// leaked key did.
func (c *Client) load() {
	raw, err := c.store.Load()
	if err == nil && raw == nil {
		return
	}
	var s state
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		c.log.Warn("start without stored state", "err", err)
		return
	}
	if s.Format != stateFormat || s.Deployment != c.trust.deployment || s.App != c.trust.app {
		c.log.Warn("start without stored state", "err", fmt.Sprintf("it is of format %d, deployment %q, app %q", s.Format, s.Deployment, s.App))
		return
	}
	for kid := range c.trust.keys {
		if m, ok := s.Marks[kid]; ok {
			c.marks[kid] = m
		}
	}
	for _, why := range gravity() {
		if n := min(s.Fallbacks[why], maxCount); n > 0 {
			c.fallbacks[why] = n
		}
	}
	if s.Answer != nil {
		c.restore(s.Answer, time.UnixMilli(s.Received))
	}
}

// restore makes a stored answer the last good one. Its age is the difference of two
// readings of the wall clock; an answer from the future has no ttl left. A clock that was
// set back in between can make it look younger, never for longer than one ttl of this
// process, and a restored answer is refreshed behind at its first use in any case.
func (c *Client) restore(body []byte, received time.Time) {
	a, err := c.trust.parse(body)
	if err != nil {
		c.log.Warn("start without the stored answer", "err", err)
		return
	}
	wall := c.wall()
	if c.marks.expired(&a, wall) {
		a.Alternates, a.Fallback = nil, ""
	}
	left := time.Duration(0)
	if age := wall.Sub(received); age >= 0 {
		left = a.ttl() - age
	}
	c.good = &held{answer: a, body: body, received: received, until: time.Now().Add(left)}
}

// save writes the state as it is now.
func (c *Client) save() {
	c.saving.Lock()
	defer c.saving.Unlock()
	c.mu.Lock()
	s := state{Format: stateFormat, Deployment: c.trust.deployment, App: c.trust.app,
		Marks: c.marks, Fallbacks: c.fallbacks}
	if c.good != nil {
		s.Answer, s.Received = c.good.body, c.good.received.UnixMilli()
	}
	raw, err := json.Marshal(s)
	c.mu.Unlock()
	if err == nil {
		err = c.store.Save(raw)
	}
	if err != nil {
		c.log.Warn("keep state for the next start", "err", err)
	}
}
