package workers

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// filing is a provider with one folder for its workspaces. Its runs write there.
type filing struct {
	fake

	dir    string
	opened int
}

func (p *filing) OpenWorkspace(_ context.Context, _ schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	p.mu.Lock()
	p.opened++
	p.mu.Unlock()
	return safefs.Open(p.dir, safefs.Options{ReadOnly: m.ReadOnly})
}

// leaves makes a provider whose runs leave files, by name and content.
func leaves(t *testing.T, files map[string]string) *filing {
	t.Helper()
	p := &filing{dir: t.TempDir()}
	p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
		for name, content := range files {
			at := filepath.Join(p.dir, name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				return providers.Result{}, err
			}
			if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
				return providers.Result{}, err
			}
		}
		return hello(ctx, cmd)
	}
	return p
}

// artifactsOf are the artifacts that a conversation announces, each of whose bytes must be there, once.
func (w *world) artifactsOf(c schemas.Call) (paths []string) {
	w.t.Helper()
	finished := false
	for _, e := range w.events(c) {
		finished = finished || e.Type == schemas.CallFinished
		if e.Type != schemas.ArtifactCreated {
			continue
		}
		var a schemas.Artifact
		if err := schemas.DecodeStrict(e.Data, len(e.Data), &a); err != nil || finished {
			w.t.Fatalf("%s: %v, behind the result: %t", e.Data, err, finished)
		}
		paths = append(paths, a.Path+"="+w.bytesOf(c, a))
	}
	return paths
}

func (w *world) bytesOf(c schemas.Call, a schemas.Artifact) string {
	w.t.Helper()
	k, err := streams.FindArtifact(w.t.Context(), w.bus, c.Account, a.ID)
	if err != nil || k.Artifact != a {
		w.t.Fatalf("%+v is announced, and there is %+v, %v", a, k.Artifact, err)
	}
	var content strings.Builder
	for _, name := range k.Chunks {
		b, err := streams.ReadArtifactChunk(w.t.Context(), w.bus, c.Account, name)
		if err != nil {
			w.t.Fatal(err)
		}
		content.Write(b)
	}
	return content.String()
}

// wantArtifacts compares what is announced, what the result lists, and what the conversation has.
func (w *world) wantArtifacts(c schemas.Call, r schemas.Result, want ...string) {
	w.t.Helper()
	if got := w.artifactsOf(c); !slices.Equal(got, want) {
		w.t.Errorf("announced %q, want %q", got, want)
	}
	listed, _, err := streams.ListArtifacts(w.t.Context(), w.bus, c.Account, c.Conversation, "", 100)
	if err != nil || !slices.Equal(listed, r.Artifacts) && len(listed)+len(r.Artifacts) > 0 || len(listed) != len(want) {
		w.t.Errorf("the conversation has %+v (%v), the result %+v", listed, err, r.Artifacts)
	}
}

func TestArtifactsOfACall(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := leaves(t, map[string]string{"outputs/plot.png": "png", "report.pdf": "pdf", "other.txt": "x"})
		if err := os.Mkdir(filepath.Join(p.dir, "outputs"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc/passwd", filepath.Join(p.dir, "outputs", "link")); err != nil {
			t.Fatal(err)
		}
		w.employ(p)
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Artifacts = []string{"*.pdf"} }))
		r := w.want(c, schemas.StatusCompleted)
		w.wantArtifacts(c, r, "outputs/plot.png=png", "report.pdf=pdf")
		if len(r.SkippedArtifacts) != 0 {
			t.Errorf("skipped %+v: the link was there before", r.SkippedArtifacts)
		}
		a := r.Artifacts[0]
		if a.Kind != schemas.KindPlot || a.MIMEType != "image/png" || a.Call != c.ID || a.URL != "/v1/artifacts/"+string(a.ID) {
			t.Errorf("%+v", a)
		}
		// A call that only reads is not looked at.
		opened := p.opened
		if err := os.WriteFile(filepath.Join(p.dir, "a.txt"), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
		w.want(w.publish(w.call("call_2", schemas.ToolRead)), schemas.StatusCompleted)
		if p.opened > opened+1 { // by the tool itself
			t.Errorf("the workspace was opened %d times for a call that reads", p.opened-opened)
		}
	})
}

// TestArtifactsThroughADeath: the worker dies at each place between the run and the result. No artifact is lost, none is there twice,
// and none is named without its bytes.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestArtifactsThroughADeath(t *testing.T) {
	for _, at := range []stage{atRan, atBytes, atKept, atAnnounced, atFinished} {
		t.Run(string(at), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := leaves(t, map[string]string{"outputs/a": "a", "outputs/b": "b"})
				died := make(chan *employed, 1)
				w.employ(p, w.dieAt(at, died))
				c := w.publish(w.call("call_1", schemas.ToolBash))
				<-(<-died).done
				w.employ(p)
				status := schemas.StatusInterrupted
				if at == atFinished || at == atRan {
					status = w.result(c).Status // atRan is behind the announcements
				}
				r := w.want(c, status)
				w.once(c)
				w.wantArtifacts(c, r, "outputs/a=a", "outputs/b=b")
				if p.count() != 1 {
					t.Errorf("%d runs, want one", p.count())
				}
			})
		})
	}
}

// TestAWorkerDiesBeforeItLooked: what the dead worker's call has left is found by when it was changed.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestAWorkerDiesBeforeItLooked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := leaves(t, map[string]string{"outputs/a": "a"})
		died := make(chan *employed, 1)
		var first *employed
		run := p.run
		p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			r, err := run(ctx, cmd)
			cut(first.bus) // it has written, and no process has read it
			first.stop()
			died <- first
			return r, err
		}
		first = w.employ(p)
		c := w.publish(w.call("call_1", schemas.ToolBash))
		<-(<-died).done
		w.employ(p)
		r := w.want(c, schemas.StatusInterrupted)
		w.once(c)
		w.wantArtifacts(c, r, "outputs/a=a")
	})
}
