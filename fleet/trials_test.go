package fleet

import (
	"context"
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dispatch.example/dispatch/release"
)

// trying runs replicas that hear a control node with trials, and waits until it
// knows them.
func (b *bank) trying(tb testing.TB, try func(id string) func(context.Context, Trial) Verdict, ids ...string) (*control, *Trials, []*replica) {
	tb.Helper()
	trials := new(Trials)
	c := newControl(tb, func(o *ServerOptions) { o.Trials = trials })
	c.offer(tb, b, b.now())
	var replicas []*replica
	for _, id := range ids {
		r := b.replica(tb, id, func(o *FollowerOptions) { o.Try = try(id) })
		r.Use([]Source{c.source("control")})
		run(tb, r.Run)
		replicas = append(replicas, r)
	}
	for _, id := range ids {
		eventually(tb, 10*time.Second, func() bool { return c.member(id).State == Current })
	}
	return c, trials, replicas
}

func (c *control) replicas() (all []Replica) {
	for _, m := range c.roster.Members(c.offered) {
		all = append(all, m.Replica)
	}
	return all
}

// A trial reaches replicas whose questions wait, they find its blobs, and what they
// say comes back at once: nobody waits for a poll.
func TestATrialIsJudgedByEveryReplica(t *testing.T) {
	t.Parallel()
	b := newBank(t, 3)
	part := []byte("192.0.2.0/24,hf\n")
	c, trials, replicas := b.trying(t, func(id string) func(context.Context, Trial) Verdict {
		return func(ctx context.Context, trial Trial) Verdict {
			data, err := trial.Blobs.Blob(ctx, release.DigestOf(part))
			if err != nil || string(data) != string(part) || string(trial.Manifest) != "draft" {
				return Verdict{Problem: "it got something else"}
			}
			return Verdict{Apps: []AppVerdict{{App: id, Sampled: 7}}, Each: 2}
		}
	}, "sh-1", "sh-2")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	blobs := release.MemoryBlobs{}
	blobs.Add(part)
	for range 3 { // one after the other, as people try
		start := time.Now()
		verdicts, silent := trials.Try(ctx, Trial{ID: time.Now().String(), Manifest: []byte("draft"), Blobs: blobs}, c.replicas())
		if len(verdicts) != 2 || len(silent) != 0 {
			t.Fatalf("verdicts %+v, silent %v", verdicts, silent)
		}
		for _, v := range verdicts {
			if v.Problem != "" || v.Apps[0].App != v.Replica || v.Apps[0].Sampled != 7 || v.Each != 2 {
				t.Errorf("verdict %+v", v)
			}
		}
		if took := time.Since(start); took > PollEvery/2 {
			t.Errorf("it took %v: somebody waited for a poll", took)
		}
	}
	// What was fetched for a draft lies on no disk, and is not to be had any more.
	for _, r := range replicas {
		if _, err := r.disk.Blob(t.Context(), release.DigestOf(part)); err == nil {
			t.Error("a part of a draft is on the disk")
		}
	}
	if _, err := c.source("again").Blob(t.Context(), release.DigestOf(part)); err == nil || !strings.Contains(err.Error(), fs.ErrNotExist.Error()) {
		t.Errorf("a part of a draft can be had after its trial: %v", err)
	}
}

// Who cannot judge says why, who says nothing is named, and neither holds up more
// than the caller allows.
func TestATrialNamesWhoHasNoVerdict(t *testing.T) {
	t.Parallel()
	b := newBank(t, 3)
	var hung atomic.Int32
	c, trials, _ := b.trying(t, func(id string) func(context.Context, Trial) Verdict {
		switch id {
		case "hangs":
			return func(ctx context.Context, _ Trial) Verdict {
				hung.Add(1)
				<-ctx.Done()
				return Verdict{Problem: "too late"}
			}
		case "judges":
			return func(context.Context, Trial) Verdict { return Verdict{Apps: []AppVerdict{}} }
		case "talks":
			return func(context.Context, Trial) Verdict {
				return Verdict{Apps: []AppVerdict{{Examples: []string{strings.Repeat("x", maxVerdict)}}}}
			}
		}
		return nil // it serves nobody
	}, "hangs", "judges", "talks", "without")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	verdicts, silent := trials.Try(ctx, Trial{ID: "1", Manifest: []byte("draft")}, c.replicas())
	problems := map[string]string{}
	for _, v := range verdicts {
		problems[v.Replica] = v.Problem
	}
	want := map[string]string{"judges": "", "talks": "the verdict is too long to be sent", "without": "it answers no requests"}
	if len(problems) != len(want) || !slices.Equal(silent, []string{"hangs"}) {
		t.Errorf("verdicts %v, silent %v", problems, silent)
	}
	for id, problem := range want {
		if problems[id] != problem {
			t.Errorf("%s says %q, want %q", id, problems[id], problem)
		}
	}
	// The next one ends the one that hangs.
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		defer cancel()
		trials.Try(ctx, Trial{ID: "2", Manifest: []byte("draft")}, []Replica{{ID: "hangs", Boot: "hangs-1"}})
	}()
	eventually(t, 3*time.Second, func() bool { return hung.Load() == 2 })
	cancel()
}

// A release goes before a trial, and goes on during one.
func TestATrialHoldsUpNoRelease(t *testing.T) {
	t.Parallel()
	b := newBank(t, 3)
	trying := make(chan struct{})
	c, trials, replicas := b.trying(t, func(string) func(context.Context, Trial) Verdict {
		return func(ctx context.Context, _ Trial) Verdict {
			close(trying)
			<-ctx.Done()
			return Verdict{}
		}
	}, "sh-1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		trials.Try(ctx, Trial{ID: "1", Manifest: []byte("draft")}, c.replicas())
	}()
	<-trying
	start := time.Now()
	c.offer(t, b, b.next(nil))
	replicas[0].serves(t, 2)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("the release took %v", took)
	}
	cancel()
	<-done
}

// What nobody signed is tried and never served, whatever it calls itself
// and however it comes.
func TestADraftNeverBecomesARelease(t *testing.T) {
	t.Parallel()
	b := newBank(t, 3)
	var tried atomic.Int32
	c, trials, replicas := b.trying(t, func(string) func(context.Context, Trial) Verdict {
		return func(context.Context, Trial) Verdict { tried.Add(1); return Verdict{Apps: []AppVerdict{}} }
	}, "sh-1")
	forged := must(b.last.Next(release.Change{Cause: release.Cause{Action: "publish", By: "mallory"}, Created: b.last.Created.Add(time.Hour)}))
	manifest := must(forged.Encode())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if verdicts, _ := trials.Try(ctx, Trial{ID: "1", Manifest: manifest, Blobs: b.blobs}, c.replicas()); len(verdicts) != 1 || tried.Load() != 1 {
		t.Fatalf("verdicts %+v", verdicts)
	}
	// The same bytes as a release, with what is at hand for a signature.
	newest := b.now()
	unsigned := release.Signed{Stream: newest.Stream, Number: 2, Manifest: manifest, Signature: newest.Signature, Records: newest.Records}
	c.offer(t, b, unsigned)
	eventually(t, 10*time.Second, func() bool { return c.member("sh-1").State == Refusing })
	if s := replicas[0].keeper.Status(); s.Number != 1 || s.Refusal == nil || s.Refusal.Number != 2 {
		t.Errorf("it serves %d, refused %+v", s.Number, s.Refusal)
	}
}

// A replica from before trials knows nothing of them, and a control node from before
// counts hears them without harm.
func TestOldNodesPassOverWhatTheyDoNotKnow(t *testing.T) {
	t.Parallel()
	var old struct {
		Number uint64 `json:"number"`
	}
	report := Report{Number: 7, Counts: []Count{{App: "mobile", N: 1}}, Verdict: &Verdict{ID: "1"}}
	if err := json.Unmarshal(must(json.Marshal(report)), &old); err != nil || old.Number != 7 {
		t.Errorf("%+v, %v", old, err)
	}
	trials := new(Trials)
	go func() { trials.Try(t.Context(), Trial{ID: "1"}, []Replica{{ID: "a", Boot: "1"}}) }()
	a := &Report{Replica: Replica{ID: "a", Boot: "1"}}
	eventually(t, 5*time.Second, func() bool { trial, _ := trials.next(a); return trial != nil })
	given := 1
	for range 10 {
		if trial, _ := trials.next(a); trial != nil {
			given++
		}
	}
	if given != maxGiven {
		t.Errorf("a replica that knows of no trials is given one %d times", given)
	}
	if trial, _ := trials.next(&Report{Replica: Replica{ID: "b", Boot: "1"}}); trial != nil {
		t.Error("it is given to one who was not asked")
	}
	trials.heard(Replica{ID: "b", Boot: "1"}, &Verdict{ID: "1"})
	trials.heard(Replica{ID: "a", Boot: "1"}, &Verdict{ID: "0"})
	trials.heard(Replica{ID: "a", Boot: "1"}, &Verdict{ID: "1"})
}
