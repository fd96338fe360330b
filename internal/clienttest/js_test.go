package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/streamcheck"
)

// job is the input of testdata/follow.mjs.
type job struct {
	Gateway       string   `json:"gateway"`
	Key           string   `json:"key"`
	Client        string   `json:"client"`
	Conversations []string `json:"conversations"`
	Events        int      `json:"events"`
	Calls         []string `json:"calls"`
}

// report is what it says afterwards.
type report struct {
	Lines       []string `json:"lines"`
	Problems    []string `json:"problems"`
	Connections int      `json:"connections"`
	Accepted    []string `json:"accepted"`
}

func (e *edge) job(client string) job {
	return job{e.url, aliceKey, client, conversations, events, []string{"one", "two", "three"}}
}

// judgeReport holds a report against the log.
func (e *edge) judgeReport(t *testing.T, r report) {
	t.Helper()
	for _, p := range r.Problems {
		t.Error(p)
	}
	saw, err := streamcheck.Read(strings.NewReader(strings.Join(r.Lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	e.judge(t, saw)
	if r.Connections < 5 {
		t.Errorf("it was connected only %d times", r.Connections)
	}
	if want := e.job("").Calls; !slices.Equal(r.Accepted, want) {
		t.Errorf("accepted %v, want %v", r.Accepted, want)
	}
	calls := 0
	for range e.replay(t, "calls") {
		calls++
	}
	if want := len(e.job("").Calls); calls != want {
		t.Errorf("%d calls are on the log, want %d: sent again, they are the same", calls, want)
	}
}

func TestNodeSeesEveryEventOnceThroughCuts(t *testing.T) {
	t.Parallel()
	long(t)
	node, dist := program(t, "node", "nodejs"), library(t)
	e := open(t, "http://nobody.test")
	e.write(t)
	j, err := json.Marshal(e.job("file://" + filepath.Join(dist, "index.js")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, append(flags(ctx, node), filepath.Join("testdata", "follow.mjs"), string(j))...)
	var said, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &failed
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, failed.String())
	}
	var r report
	if err := json.Unmarshal(said.Bytes(), &r); err != nil {
		t.Fatalf("%v: %.200s", err, said.String())
	}
	e.judgeReport(t, r)
}

// flags are those that give this Node a WebSocket: before 22 it has one only if asked for it.
func flags(ctx context.Context, node string) []string {
	const has = `process.exit(typeof WebSocket === "function" ? 0 : 1)`
	if exec.CommandContext(ctx, node, "-e", has).Run() == nil {
		return nil
	}
	return []string{"--no-warnings", "--experimental-websocket"}
}

func TestChromiumSeesEveryEventOnceThroughCuts(t *testing.T) {
	t.Parallel()
	long(t)
	chromium, dist := program(t, "chromium", "chromium-browser", "google-chrome"), library(t)
	var e *edge
	pages, reports := http.NewServeMux(), receive[report](t)
	pages.Handle("GET /", http.FileServer(http.Dir("testdata")))
	pages.Handle("GET /dist/", http.StripPrefix("/dist/", http.FileServer(http.Dir(dist))))
	pages.HandleFunc("GET /job", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(e.job("/dist/index.js"))
	})
	pages.Handle("POST /report", reports)
	site := httptest.NewServer(pages)
	t.Cleanup(site.Close)
	e = open(t, site.URL)
	e.write(t)

	browse(t, chromium, site.URL+"/page.html")
	e.judgeReport(t, await(t, reports))
}
