package testenv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Control is a program on this machine that a test starts, freezes, kills and
// starts again with the same arguments. It signals only the process that it
// started. The fields are set before the first Start.
type Control struct {
	Name string
	Args []string                        // the program and its arguments
	Env  []string                        // on top of ours
	Dir  string                          // where it runs
	Log  string                          // the file that what it prints is appended to
	Up   func(ctx context.Context) error // nil when it answers; no function: at once
	Rude bool                            // Stop kills: it keeps nothing, and would take its time

	mu   sync.Mutex // guards proc
	proc *process
}

// Start starts the program and waits until it is up. A program that ends before
// is an error, with the end of its log.
func (c *Control) Start(ctx context.Context) error {
	if err := c.Launch(); err != nil {
		return err
	}
	if c.Up == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.Up(limited)
		select {
		case <-c.Done():
			return fmt.Errorf("start %s: it ended: %w\n%s", c.Name, c.running().err, c.Tail())
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-c.Done():
		case <-limited.Done():
			return errors.Join(fmt.Errorf("start %s: not up: %w\n%s", c.Name, err, c.Tail()), c.Kill())
		case <-tick.C:
		}
	}
}

// Launch starts the program and does not wait.
func (c *Control) Launch() error {
	out, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	defer func() { _ = out.Close() }() // the child has its own handle
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(os.Environ(), c.Env...), c.Dir, out, out
	proc, err := run(cmd)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proc = proc
	return nil
}

// Done is closed when the program that was started last has ended.
func (c *Control) Done() <-chan struct{} { return c.running().done }

// PID is the number of the process that was started last.
func (c *Control) PID() int { return c.running().cmd.Process.Pid }

// Stop ends the program as an operator does, also a frozen one, and kills it
// after the grace. One that never ran or has ended is no error.
func (c *Control) Stop(grace time.Duration) error {
	p := c.running()
	if p == nil {
		return nil
	}
	if c.Rude {
		return c.Kill()
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a frozen process hears nothing else
	return p.stop(grace)
}

// Kill ends the program as a crash does.
func (c *Control) Kill() error {
	p := c.running()
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", c.Name, err)
	}
	<-p.done
	return nil
}

// Pause freezes the program: its connections stay open and nothing answers.
func (c *Control) Pause() error { return c.signal(syscall.SIGSTOP) }

// Resume lets a frozen program go on.
func (c *Control) Resume() error { return c.signal(syscall.SIGCONT) }

// Tail is the end of its log.
func (c *Control) Tail() string {
	const most = 4 << 10
	text, _ := os.ReadFile(c.Log) // a help for the reader only
	return string(text[max(0, len(text)-most):])
}

func (c *Control) signal(s syscall.Signal) error {
	if err := c.running().cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%s %s: %w", s, c.Name, err)
	}
	return nil
}

func (c *Control) running() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc
}

// FreeAddr is an address of loopback that nobody has now, and that stays free: no
// address is given twice to one process, and systems take ports of outgoing
// connections from above, beginning at 32768 or higher.
func FreeAddr() (string, error) {
	const lowest, highest, tries = 15_000, 32_000, 100
	for range tries {
		port := lowest + rand.N(highest-lowest)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if _, taken := given().LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue // somebody has it
		}
		return addr, l.Close()
	}
	return "", fmt.Errorf("find a free port: none of %d tried between %d and %d", tries, lowest, highest)
}

// given are the ports that FreeAddr returned.
var given = sync.OnceValue(func() *sync.Map { return new(sync.Map) })
