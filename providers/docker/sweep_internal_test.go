//go:build linux

package docker

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/schemas"
)

// sweepingEngine is an engine with one kept container, in which a sweep ends with the next of its exit codes, the last one again and again.
// At a code below 0 the engine fails.
type sweepingEngine struct {
	mu     sync.Mutex
	codes  []int
	code   int // of the latest sweep
	sweeps int
	paused bool
	killed bool
}

func (e *sweepingEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v"), "/")
	switch {
	case path == "containers/json":
		fmt.Fprint(w, `[]`)
	case strings.HasPrefix(path, "containers/") && strings.HasSuffix(path, "/json"):
		fmt.Fprintf(w, `{"Id":"box","State":{"Running":%v,"Paused":%v}}`, !e.killed, e.paused)
	case path == "containers/box/unpause":
		e.paused = false
		w.WriteHeader(http.StatusNoContent)
	case path == "containers/box/exec":
		e.code = e.codes[min(e.sweeps, len(e.codes)-1)]
		e.sweeps++
		switch {
		case e.paused:
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"message":"the container is paused"}`)
		case e.code < 0:
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"message":"no room"}`)
		default:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"Id":"sweep"}`)
		}
	case path == "exec/sweep/start":
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	case path == "exec/sweep/json":
		fmt.Fprintf(w, `{"ID":"sweep","Running":false,"ExitCode":%d}`, e.code)
	case path == "containers/box/kill":
		e.killed = true
		w.WriteHeader(http.StatusNoContent)
	case path == "containers/box/wait":
		fmt.Fprint(w, `{"StatusCode":137}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"message":"no %s"}`, path)
	}
}

// TestSweepOfKeptContainer: a kept container is ended for a command in it only where sweeps have repeatedly seen that something stays.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestSweepOfKeptContainer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		codes  []int
		paused bool
		code   schemas.Code
		killed bool
	}{
		"at once":                  {codes: []int{0}},
		"paused":                   {codes: []int{0}, paused: true},
		"the engine fails once":    {codes: []int{-1, 0}},
		"something stays at first": {codes: []int{75, 0}},
		"the engine always fails":  {codes: []int{-1}, code: schemas.Unavailable},
		"the sweep is killed":      {codes: []int{137}, code: schemas.Unavailable},
		"something stays":          {codes: []int{75}, killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &sweepingEngine{codes: c.codes, paused: c.paused}
			s := httptest.NewServer(e)
			defer s.Close()
			engine, err := client.New(client.WithHost("tcp://"+s.Listener.Addr().String()), client.WithAPIVersion("1.44"))
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Installation: "test", UID: 1000, GID: 1000, Log: slog.New(slog.DiscardHandler)}
			p := assemble(o, engine, facts{}, &image{shell: "sh"})
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if err := p.EndRun(ctx, "key", "acct_docker", "run"); schemas.CodeOf(err) != c.code {
				t.Errorf("got %v, want code %q", err, c.code)
			}
			if e.killed != c.killed || e.sweeps < len(c.codes) {
				t.Errorf("ended %v after %d sweeps, want %v", e.killed, e.sweeps, c.killed)
			}
		})
	}
}
