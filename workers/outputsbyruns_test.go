package workers

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// shellCall is a call of bash that names files.
func (w *world) shellCall(id, command string, names ...string) schemas.Call {
	w.t.Helper()
	input, err := json.Marshal(map[string]string{"command": command})
	testwait.OK(w.t, err)
	return w.call(id, schemas.ToolBash, func(c *schemas.Call) { c.Input, c.Artifacts = input, names })
}

// named has a worker serve the provider that calls name.
func named(wk *Worker) { wk.Name = "fake" }

// questions are what runs for files were asked since the last time, and "call" stands for each other run.
func (v *volumes) questions(t *testing.T, persistent bool) (asked []string) {
	t.Helper()
	for _, c := range v.ran() {
		if !strings.HasPrefix(c.ID, "files_") {
			asked = append(asked, "call")
			continue
		}
		asked = append(asked, strings.SplitN(string(c.Stdin), "\n", 3)[1])
		if c.Sandbox.IsZero() == persistent || !persistent && (c.Network.Mode != schemas.DenyAll || c.Spec.Sandbox != "" || len(c.Env) > 0) {
			t.Errorf("a look ran in %+v", c)
		}
	}
	return asked
}

// TestArtifactsByRuns: a call that names files has artifacts also where no worker reaches them, and so has each call of a sandbox that names
// some. Other calls cost no run more, and are silent.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestArtifactsByRuns(t *testing.T) {
	for name, wrap := range map[string]func(*volumes) providers.Provider{
		"no Filer":        func(v *volumes) providers.Provider { return v },
		"a Filer of none": func(v *volumes) providers.Provider { return shy{v} },
		"persistent":      func(v *volumes) providers.Provider { return v },
	} {
		t.Run(name, func(t *testing.T) {
			if name != "no Filer" {
				longtest.Only(t, "the same by another way")
			}
			inWorld(t, func(t *testing.T, w *world) {
				v := newVolumes(t)
				w.specs.persistent = name == "persistent"
				w.employ(wrap(v), named)
				artifactsByRuns(t, w, v)
			})
		})
	}
}

func artifactsByRuns(t *testing.T, w *world, v *volumes) {
	t.Helper()
	persistent := w.specs.persistent
	expect := func(what string, want ...string) {
		t.Helper()
		if got := v.questions(t, persistent); !slices.Equal(got, want) {
			t.Errorf("%s: ran %q, want %q", what, got, want)
		}
	}
	skipped := func(r schemas.Result) (all []string) {
		for _, s := range r.SkippedArtifacts {
			all = append(all, s.Path+"!"+string(s.Reason))
		}
		return all
	}
	c := w.publish(w.shellCall("call_1", "mkdir -p outputs/deep; echo old >outputs/old; echo old >outputs/gone; echo old >old.txt"))
	r := w.want(c, schemas.StatusCompleted)
	w.wantArtifacts(c, r)
	if len(r.SkippedArtifacts) != 0 {
		t.Errorf("%+v", r.SkippedArtifacts)
	}
	expect("a call that names nothing", "call")

	c = w.publish(w.shellCall("call_2", "echo old >outputs/old; rm outputs/gone; echo new >old.txt; echo plot >outputs/deep/'ü $(id).svg'; "+
		"ln -s /etc/passwd outputs/link; truncate -s 40M outputs/huge; echo x >other; mkdir -p a/b; echo csv >a/b/t.csv", "*.txt", "a/**/*.csv"))
	r = w.want(c, schemas.StatusCompleted)
	w.wantArtifacts(c, r, "a/b/t.csv=csv\n", "old.txt=new\n", "outputs/deep/ü $(id).svg=plot\n")
	if got, want := skipped(r), []string{"outputs/huge!too_large", "outputs/link!link"}; !slices.Equal(got, want) {
		t.Errorf("skipped %q, want %q", got, want)
	}
	expect("a call that names some", "trees", "sums", "call", "trees", "sums", "read", "read", "read")

	w.specs.name("*.pdf")
	c = w.publish(w.shellCall("call_3", "echo pdf >report.pdf"))
	w.wantArtifacts(c, w.want(c, schemas.StatusCompleted), "report.pdf=pdf\n")
	if got := v.questions(t, persistent); len(got) < 4 || got[0] != "trees" || len(got) > 7 {
		t.Errorf("a sandbox that names some: ran %q", got)
	}
	w.specs.name()
}

// name has the sandbox name artifacts.
func (s *specs) name(patterns ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change = func(sb *schemas.Sandbox) { sb.Artifacts = patterns }
}

// TestArtifactsByRunsThroughADeath: the worker dies at each place between the run and the result, as where the worker reaches the files.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestArtifactsByRunsThroughADeath(t *testing.T) {
	stages := []stage{atKept}
	if longtest.Asked() {
		stages = append(stages, atBytes, atAnnounced)
	}
	for _, at := range stages {
		t.Run(string(at), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				v := newVolumes(t)
				died := make(chan *employed, 1)
				w.employ(v, named, w.dieAt(at, died))
				c := w.publish(w.shellCall("call_1", "mkdir outputs; echo a >outputs/a; echo b >b", "b"))
				<-(<-died).done
				w.employ(v, named)
				r := w.want(c, schemas.StatusInterrupted)
				w.once(c)
				w.wantArtifacts(c, r, "b=b\n", "outputs/a=a\n")
				calls := slices.DeleteFunc(v.questions(t, false), func(q string) bool { return q != "call" })
				if len(calls) != 1 {
					t.Errorf("%d runs, want one", len(calls))
				}
			})
		})
	}
}

// blind is volumes whose runs for files are carried out by a function.
type blind struct {
	*volumes

	look func(context.Context) (providers.Result, error)
}

func (p blind) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	if strings.HasPrefix(cmd.ID, "files_") {
		return p.look(ctx)
	}
	return p.volumes.Run(ctx, cmd)
}

// TestALookByRunsNeverFailsACall: it says why nothing was looked for, and holds the call up for a bounded time.
func TestALookByRunsNeverFailsACall(t *testing.T) {
	for name, tt := range map[string]struct {
		look func(context.Context) (providers.Result, error)
		want schemas.SkipReason
	}{
		"a sandbox that does not start": {func(ctx context.Context) (providers.Result, error) {
			<-ctx.Done()
			return providers.Result{}, context.Cause(ctx)
		}, schemas.SkipTimeout},
		"a run that was lost": {func(context.Context) (providers.Result, error) {
			return providers.Result{}, schemas.Errorf(schemas.Interrupted, "lost")
		}, schemas.SkipUnreadable},
		"a run that ran out of time": {func(context.Context) (providers.Result, error) { return providers.Result{TimedOut: true}, nil }, schemas.SkipTimeout},
		"a sandbox without the programs": {func(context.Context) (providers.Result, error) { return providers.Result{ExitCode: 127}, nil },
			schemas.SkipUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				v := newVolumes(t)
				w.employ(blind{v, tt.look}, named)
				c := w.publish(w.shellCall("call_1", "mkdir outputs; echo a >outputs/a", "b"))
				r := w.want(c, schemas.StatusCompleted)
				w.wantArtifacts(c, r)
				if len(r.SkippedArtifacts) != 1 || r.SkippedArtifacts[0].Reason != tt.want || !strings.Contains(r.Text, string(tt.want)) {
					t.Errorf("%+v %q", r.SkippedArtifacts, r.Text)
				}
				if _, err := os.Stat(filepath.Join(v.of(c.Account), "outputs/a")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
