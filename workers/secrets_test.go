package workers

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// A variable of a sandbox reaches the command and nothing else: not the log with its events, results,
// jobs and dead letters, and not what the processes say. Only a command that prints it shows it, which
// is also how the search proves that it finds something.
//
//guarantee:secrets-are-not-readable-on-the-log
func TestVariablesOfSandboxesAreNowhereElse(t *testing.T) {
	const secret = "pl4nted-s3cret"
	p, dir := openLocal(t), t.TempDir()
	l := natstest.Start(t, natstest.Dir(dir), natstest.Durability("always"), natstest.Shards(1))
	said := new(sharedBuffer)
	log := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w := &world{t: t, bus: l.Bus, specs: &specs{persistent: true, change: func(s *schemas.Sandbox) {
		s.EnvVars = map[string]string{"TOKEN": secret}
	}}}
	ctx, stop := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	worker := &Worker{Bus: l.Open(), Provider: p, Name: "fake", Specs: w.specs, Log: log}
	settler := &maintenance.Settler{Bus: w.bus, Log: log}
	forwarder := &streams.DeadLetterForwarder{Bus: w.bus, Log: log}
	for _, run := range []func(context.Context) error{worker.Run, settler.Run, forwarder.Run} {
		parts.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	defer parts.Wait()
	defer stop()

	bash := func(id, command string, change ...func(*schemas.Call)) schemas.Call {
		return w.publish(w.call(id, schemas.ToolBash, append(change, func(c *schemas.Call) {
			c.Input = []byte(`{"command":"` + command + `"}`)
		})...))
	}
	if r := w.result(bash("used", `test ${#TOKEN} = 14 && echo fits`)); r.Output.Stdout != "fits\n" {
		t.Fatalf("the command does not have it: %s", r.Text)
	}
	w.want(bash("fails", `exit 3`), schemas.StatusCompleted)
	w.want(bash("unknown", `nosuchprogram`), schemas.StatusCompleted)
	w.result(bash("late", `sleep 60`, func(c *schemas.Call) { c.Timeout = schemas.Duration(200 * time.Millisecond) }))
	w.result(bash("wrong", `x`, func(c *schemas.Call) { c.Tool = schemas.ToolEdit })) // its input does not fit
	job := w.publish(w.background("job", "test -n $TOKEN; exit 4"))
	w.want(job, schemas.StatusCompleted)
	if j := w.ended(job); j.ExitCode == nil || *j.ExitCode != 4 {
		t.Errorf("the job is %+v", j)
	}

	found := func() (files []string) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // the server's own files come and go
			}
			if b, _ := os.ReadFile(path); bytes.Contains(b, []byte(secret)) {
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if files := found(); len(files) > 0 {
		t.Errorf("the secret is on the log, in %s", files)
	}
	if text := said.String(); text == "" || strings.Contains(text, secret) {
		t.Errorf("the log of the processes is empty or shows it:\n%s", text)
	}
	w.want(bash("shows", `echo $TOKEN`), schemas.StatusCompleted)
	if len(found()) == 0 {
		t.Error("the search does not find what a command printed: it proves nothing")
	}
}

// sharedBuffer is written to by loggers.
type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sharedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
