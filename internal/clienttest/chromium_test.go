package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// browse opens a page in a Chromium without a window, which ends with the test.
func browse(t *testing.T, chromium, page string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, dir) })
	cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-port=0",
		"--user-data-dir="+dir, page)
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = io.Discard, said
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it is many processes
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the folder is removed
		_ = cmd.Cancel()
		_ = cmd.Wait() // by the signal
		if t.Failed() {
			t.Logf("Chromium said:\n%s", said)
		}
	})
}

// removeAll removes a folder in which processes may write that are about to end: Chromium has some that are
// not of its group.
func removeAll(t *testing.T, dir string) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if err = os.RemoveAll(dir); err == nil {
			return
		}
	}
	t.Error(err)
}

// receiver takes what pages post.
type receiver[T any] struct {
	t   *testing.T
	got chan T
}

func receive[T any](t *testing.T) *receiver[T] {
	t.Helper()
	return &receiver[T]{t, make(chan T, 1)}
}

func (r *receiver[T]) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var v T
	if err := json.NewDecoder(q.Body).Decode(&v); err != nil {
		r.t.Errorf("the page's report: %v", err)
	}
	w.WriteHeader(http.StatusNoContent)
	select {
	case r.got <- v:
	default: // one is enough
	}
}

// await returns the first thing that a page posts.
func await[T any](t *testing.T, r *receiver[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var v T
	select {
	case v = <-r.got:
	case <-ctx.Done():
		t.Fatalf("the page did not report in %s", patience)
	}
	return v
}

// watcher reports the text of a page once it shows the last event.
const watcher = `<script type="module">
  const pace = setInterval(() => {
    const lines = [...document.querySelectorAll("#events li")].map((e) => e.textContent);
    if (lines.length < LAST) return;
    clearInterval(pace);
    fetch("report", { method: "POST", body: JSON.stringify({ lines, status: document.querySelector("#status").textContent }) });
  }, 100);
</script>`

func TestThePageOfTheGuideShowsEveryEventOnceThroughCuts(t *testing.T) {
	t.Parallel()
	long(t)
	chromium, dist := program(t, "chromium", "chromium-browser", "google-chrome"), library(t)
	guide, err := os.ReadFile("../../docs/guides/streaming.md")
	if err != nil {
		t.Fatal(err)
	}
	page := regexp.MustCompile("(?s)```html\n(.*?)```").FindSubmatch(guide)
	if page == nil {
		t.Fatal("the guide has no page")
	}
	type shown struct {
		Lines  []string `json:"lines"`
		Status string   `json:"status"`
	}
	pages, reports := http.NewServeMux(), receive[shown](t)
	pages.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write(page[1])
		_, _ = io.WriteString(w, strings.Replace(watcher, "LAST", strconv.Itoa(events), 1))
	})
	pages.Handle("GET /client/", http.StripPrefix("/client/", http.FileServer(http.Dir(dist))))
	pages.Handle("POST /report", reports)
	site := httptest.NewServer(pages)
	t.Cleanup(site.Close)
	e := open(t, site.URL)
	e.write(t)
	conv := conversations[0]
	browse(t, chromium, site.URL+"/#"+url.Values{"url": {e.url}, "key": {aliceKey}, "conversation": {conv}}.Encode())
	got := await(t, reports)
	if len(got.Lines) != events {
		t.Errorf("the page shows %d lines, want %d", len(got.Lines), events)
	}
	for n, line := range got.Lines {
		if want := fmt.Sprintf("call.output line %d of %s", n, conv); !strings.HasPrefix(line, want) {
			t.Fatalf("line %d is %.80q, want %q", n, line, want)
		}
	}
	// The status may be of a cut just now: waiting, connection 6: close code 1006.
	if !regexp.MustCompile(`, connection ([2-9]|\d\d)`).MatchString(got.Status) { // the last cut may be just now
		t.Errorf("it says %q: was it never cut?", got.Status)
	}
}
