package caller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"dispatch.example/dispatch/discovery/rules"
	"dispatch.example/dispatch/discovery/wire"
	"dispatch.example/dispatch/internal/signed"
)

const (
	copyName   = "tables.copy"     // the newest
	formerName = "tables.old.copy" // the one before it, should the newest be damaged
	badExt     = ".bad"
	tempExt    = ".tmp"
	// copyEvery bounds the writing: a copy is for a start without control, and is as
	// good a few seconds older.
	copyEvery = 5 * time.Second
	// patience is how long a start waits for control before it does without: a node
	// that has just started holds the first question too, until it has heard of its
	// registries.
	patience = wire.HoldFor + answerWithin
	// copyFormat is what this version writes, and all that it reads.
	copyFormat = 1
)

// copied is what is kept on disk, behind a line with the checksum of the rest.
type copied struct {
	Format   int                     `json:"format"`
	Saved    time.Time               `json:"saved"`
	Region   string                  `json:"region"`
	Services map[string]wire.Service `json:"services"`
	Rules    *rules.Signed           `json:"rules,omitempty"` // nil: there were none

	set  rules.Set
	mark signed.Mark
}

// errDamaged is a copy that is set aside.
var errDamaged = errors.New("the copy is damaged")

// restore reads the copy and takes its rules into use, so that no control node can
// bring older ones. Its lists are for standIn. It returns nil if there is none.
func (c *Caller) restore() *copied {
	if c.opt.Dir == "" || len(c.opt.Control) == 0 {
		return nil
	}
	for _, name := range []string{copyName, formerName} {
		path := filepath.Join(c.opt.Dir, name)
		kept, err := c.readCopy(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.Is(err, errDamaged) {
			_ = os.Rename(path, path+badExt) // one that cannot be renamed is found damaged again
		}
		c.troubles.note("copy", err)
		if err != nil {
			continue
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if kept.Rules != nil {
			c.takeRules(kept.set, kept.mark, kept.Rules)
		}
		return kept
	}
	return nil
}

func (c *Caller) readCopy(path string) (*copied, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read copy of tables: %w", err)
	}
	line, body, _ := bytes.Cut(data, []byte("\n"))
	if sum, found := strings.CutPrefix(string(line), "sha256="); !found || sum != checksum(body) {
		return nil, fmt.Errorf("read copy of tables %s: its checksum does not fit: %w", path, errDamaged)
	}
	var kept copied
	if err := json.Unmarshal(body, &kept); err != nil {
		return nil, fmt.Errorf("read copy of tables %s: %w: %w", path, errDamaged, err)
	}
	if kept.Format != copyFormat || kept.Region != c.opt.Self.Region {
		return nil, fmt.Errorf("read copy of tables %s: it has format %d and is of region %s, not %d and %s",
			path, kept.Format, kept.Region, copyFormat, c.opt.Self.Region)
	}
	if kept.Rules != nil {
		if kept.set, kept.mark, err = c.verify(kept.Rules); err != nil {
			return nil, fmt.Errorf("read copy of tables %s: %w: %w", path, errDamaged, err)
		}
	}
	return &kept, nil
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// use takes the lists of the copy into use, unless control has answered meanwhile.
func (c *Caller) use(kept *copied) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.heard.control.IsZero() {
		return false
	}
	c.heard.copied = kept.Saved
	for name, s := range kept.Services {
		c.learn(name, told{Service: s, full: true, first: true})
	}
	if kept.Rules == nil {
		c.book.known = true // there were none
	}
	c.soil()
	c.log.Warn("control nodes do not answer; the copy on disk is in use", "saved", kept.Saved, "number", c.book.number)
	return true
}

// standIn gives control nodes their chance, and then uses what there is without
// them: the copy, else the registry until control answers.
func (c *Caller) standIn(ctx context.Context, kept *copied) {
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-c.answered:
		return
	case <-ctx.Done():
		return
	case <-c.passed:
	case <-wait.C:
	}
	if kept != nil && c.use(kept) || c.opt.Registry == nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() { c.watchRegistry(ctx) })
	select {
	case <-c.answered:
		stop()
	case <-ctx.Done():
	}
	watch.Wait()
}

// keepCopy writes the copy when it is old, and once more at the end.
func (c *Caller) keepCopy(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			select {
			case <-c.copying:
				c.troubles.note("copy", c.writeCopy())
			default:
			}
			return
		case <-c.copying:
			c.troubles.note("copy", c.writeCopy())
		}
		pause(ctx, copyEvery)
	}
}

// writeCopy replaces the copy by what control has told. The one before it stays
// as the former one.
func (c *Caller) writeCopy() error {
	c.mu.Lock()
	if c.heard.control.IsZero() || !c.book.known {
		c.mu.Unlock()
		return nil
	}
	kept := copied{Format: copyFormat, Saved: time.Now().UTC(), Region: c.opt.Self.Region, Services: map[string]wire.Service{}, Rules: c.book.signed}
	for name, l := range c.lists {
		kept.Services[name] = wire.Service{Digest: l.digest(), Instances: l.instances, Scale: l.told.Scale}
	}
	c.mu.Unlock()
	body, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("write copy of tables: %w", err)
	}
	path := filepath.Join(c.opt.Dir, copyName)
	if err := replaceFile(path, []byte("sha256="+checksum(body)+"\n"+string(body))); err != nil {
		return fmt.Errorf("write copy of tables: %w", err)
	}
	return nil
}

// replaceFile writes data beside path, makes it durable, and puts it in its place.
func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path+tempExt, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(filepath.Dir(path), formerName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
