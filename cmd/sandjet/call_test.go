package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// lockedBuffer is a bytes.Buffer that two goroutines may write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fakeGateway answers as a gateway would whose call never ends by itself.
type fakeGateway struct {
	waited   chan struct{} // closed when a client waits for the result
	once     sync.Once
	cancel   func(http.ResponseWriter)
	finished chan schemas.Result
}

func (f *fakeGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/calls":
		var req schemas.Request
		_ = json.NewDecoder(r.Body).Decode(&req)
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"id":%q,"conversation":"c_1","status":"running"}`, req.ID)
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		f.cancel(w)
	case strings.HasSuffix(r.URL.Path, "/events"):
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		f.once.Do(func() { close(f.waited) })
		select {
		case res := <-f.finished:
			_ = printJSON(w, res)
		case <-r.Context().Done():
		}
	}
}

func runCall(t *testing.T, f *fakeGateway) (res schemas.Result, said string, err error) {
	t.Helper()
	f.waited, f.finished = make(chan struct{}), make(chan schemas.Result, 1)
	srv := httptest.NewServer(f)
	defer srv.Close()
	defer srv.CloseClientConnections()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		<-f.waited
		stop() // Ctrl-C
	}()
	out, errs := &lockedBuffer{}, &lockedBuffer{}
	c := &callRun{
		client:  client.New(srv.URL, "k"),
		request: schemas.Request{ID: "call_1", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"x"}`)},
		t:       terminal{out: out, err: errs},
	}
	res, err = c.do(ctx)
	return res, errs.String(), err
}

func TestCtrlCCancelsAndWaitsForTheResult(t *testing.T) {
	f := &fakeGateway{}
	f.cancel = func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"id":"call_1","status":"cancelling"}`)
		f.finished <- schemas.Result{Call: "call_1", Tool: schemas.ToolBash, Status: schemas.StatusCancelled}
	}
	res, said, err := runCall(t, f)
	if err != nil || res.Status != schemas.StatusCancelled || !strings.Contains(said, "cancelling call_1") ||
		!strings.Contains(said, "call cancelled") {
		t.Errorf("%+v, %v, %q", res, err, said)
	}
}

func TestCtrlCLeavesWhenTheCallCannotBeCancelled(t *testing.T) {
	f := &fakeGateway{cancel: func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }}
	begun := time.Now()
	_, _, err := runCall(t, f)
	if !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(err.Error(), "it continues") {
		t.Errorf("got %v after %s", err, time.Since(begun))
	}
}

func TestPatientReportsOnceThatTheGatewayIsUnavailable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	out := &lockedBuffer{}
	h := &http.Client{Transport: &patient{out: out, at: srv.URL}}
	ask := func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := h.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	ask()
	if out.String() != "" {
		t.Errorf("it complains about nothing: %q", out)
	}
	srv.Close()
	ask()
	ask()
	if got := out.String(); strings.Count(got, "is unreachable") != 1 {
		t.Errorf("got %q", got)
	}
}

func TestPrintShowsWhatWasNotShownLive(t *testing.T) {
	const both = "out\n"
	for name, c := range map[string]struct {
		pieces    []schemas.OutputData
		truncated bool
		out, err  string
	}{
		"nothing was":    {nil, false, both, "err\n"},
		"one stream was": {[]schemas.OutputData{{Stream: "stdout", Text: both, Bytes: 4}}, false, both, "err\n"},
		"both were": {[]schemas.OutputData{{Stream: "stdout", Text: both, Bytes: 4},
			{Stream: "stderr", Text: "err\n", Bytes: 4}}, false, both, "err\n"},
		"the beginning was": {[]schemas.OutputData{{Stream: "stdout", Text: "o", Bytes: 1},
			{Stream: "stdout", Offset: 1, Text: "u", Bytes: 1}}, false, both, "err\n"},
		"a later part was":          {[]schemas.OutputData{{Stream: "stdout", Offset: 1, Text: "u", Bytes: 1}}, false, "ut\n", "err\n"},
		"the beginning of much was": {[]schemas.OutputData{{Stream: "stdout", Text: "o", Bytes: 1}}, true, "o", "err\n"},
		"the beginning, up to a cap": {[]schemas.OutputData{{Stream: "stdout", Text: "o", Bytes: 1},
			{Stream: "stdout", Offset: 1, Capped: true}}, false, "o", "sandjet: more output follows than is shown live\nerr\n"},
		"bytes were that are no text": {[]schemas.OutputData{{Stream: "stdout", Text: "\uFFFD", Bytes: 1},
			{Stream: "stdout", Offset: 1, Text: "x", Bytes: 1}}, false, "\uFFFDx", "err\n"},
	} {
		out, errs := &lockedBuffer{}, &lockedBuffer{}
		run := &callRun{t: terminal{out: out, err: errs}}
		for _, p := range c.pieces {
			run.piece(p)
		}
		result := schemas.Result{
			Tool: schemas.ToolBash, Status: schemas.StatusCompleted, Output: &schemas.Output{Stdout: both, Stderr: "err\n", Truncated: c.truncated},
		}
		if err := run.print(result); err != nil || out.String() != c.out || errs.String() != c.err {
			t.Errorf("%s: %q, %q, %v", name, out, errs, err)
		}
	}
}

// TestBytesThatAreNoTextAreCounted: where the output had bytes that are not UTF-8, which are shown as U+FFFD, a note says how many.
func TestBytesThatAreNoTextAreCounted(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "", 1: "sandjet: 1 byte is not UTF-8 and shown as U+FFFD; to pass binary data on, use base64 or a file\n",
		3: "sandjet: 3 bytes are not UTF-8 and shown as U+FFFD; to pass binary data on, use base64 or a file\n",
	} {
		out, errs := &lockedBuffer{}, &lockedBuffer{}
		run := &callRun{t: terminal{out: out, err: errs}}
		result := schemas.Result{
			Tool: schemas.ToolBash, Status: schemas.StatusCompleted, Output: &schemas.Output{Stdout: "\uFFFD\n", InvalidBytes: n},
		}
		if err := run.print(result); err != nil || out.String() != "\uFFFD\n" || errs.String() != want {
			t.Errorf("%d: %q, %q, %v", n, out, errs, err)
		}
	}
}

// TestArtifactsAreSaidBesideTheOutput: stderr lists the artifacts that a call stored and, for bash, the files that were skipped. Control
// characters in names are replaced.
func TestArtifactsAreSaidBesideTheOutput(t *testing.T) {
	t.Parallel()
	result := schemas.Result{
		Tool: schemas.ToolBash, Status: schemas.StatusCompleted, Output: &schemas.Output{Stdout: "done\n"},
		Artifacts:        []schemas.Artifact{{ID: "art_1", Path: "outputs/a\x1b.csv", Size: 6}, {ID: "art_2", Path: "outputs/b", Size: 1}},
		SkippedArtifacts: []schemas.SkippedArtifact{{Path: "outputs/l", Reason: schemas.SkipLink}, {Reason: schemas.SkipTooMany, Count: 3}},
	}
	for tool, want := range map[schemas.Tool]string{
		schemas.ToolBash: "sandjet: kept outputs/a\uFFFD.csv (6 bytes) as art_1\nsandjet: kept outputs/b (1 byte) as art_2\n" +
			"sandjet: not kept as an artifact: outputs/l: link\nsandjet: 3 more not kept as artifacts\n",
		schemas.ToolWrite: "sandjet: kept outputs/a\uFFFD.csv (6 bytes) as art_1\nsandjet: kept outputs/b (1 byte) as art_2\n",
	} {
		out, errs := &lockedBuffer{}, &lockedBuffer{}
		result.Tool, result.Text = tool, "done"
		if err := (&callRun{t: terminal{out: out, err: errs}}).print(result); err != nil || out.String() != "done\n" || errs.String() != want {
			t.Errorf("%s: %q, %q, %v", tool, out, errs, err)
		}
	}
}

// TestAStreamThatBreaksOffLosesNoOutput: if the live stream breaks off, the output that it has shown is not printed again with the result,
// and the rest is printed from the result.
func TestAStreamThatBreaksOffLosesNoOutput(t *testing.T) {
	t.Parallel()
	shown := make(chan struct{})
	var broken atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"id":"call_1","conversation":"c_1","status":"running"}`)
		case !strings.HasSuffix(r.URL.Path, "/events"):
			<-shown
			_ = printJSON(w, schemas.Result{Call: "call_1", Tool: schemas.ToolBash, Status: schemas.StatusCompleted,
				Output: &schemas.Output{Stdout: "begun\ndone\n"}})
		case broken.Swap(true):
			http.Error(w, "away", http.StatusServiceUnavailable)
		default:
			e := schemas.NewEvent(schemas.Call{ID: "call_1", Account: "acct_1", Conversation: "c_1"}, schemas.CallOutput, "e_1", time.Now(),
				schemas.OutputData{Call: "call_1", Stream: "stdout", Text: "begun\n", Bytes: 6, Attempt: 1})
			data, err := json.Marshal(e)
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "id: %s\nevent: call.output\ndata: %s\n\n", schemas.Cursor{Epoch: "e", Seq: 1}, data)
		}
	}))
	t.Cleanup(srv.Close)
	out := &firstWrite{done: shown}
	c := &callRun{
		client:  client.New(srv.URL, "k"),
		request: schemas.Request{ID: "call_1", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"x"}`)},
		t:       terminal{out: out, err: io.Discard},
	}
	if res, err := c.do(t.Context()); err != nil || res.Status != schemas.StatusCompleted || out.String() != "begun\ndone\n" {
		t.Errorf("%+v, %v; it printed %q", res, err, out)
	}
}

// firstWrite is a lockedBuffer that reports its first write.
type firstWrite struct {
	lockedBuffer

	once sync.Once
	done chan struct{}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	defer f.once.Do(func() { close(f.done) })
	return f.lockedBuffer.Write(p)
}

func TestTailBufferKeepsTheEnd(t *testing.T) {
	b := &tailBuffer{}
	for range 1000 {
		fmt.Fprintln(b, `time=now level=INFO msg="a line of the log"`)
	}
	fmt.Fprintln(b, "sandjet: what it was")
	if got := b.last(); got != "sandjet: what it was" || len(b.buf) > tailBytes {
		t.Errorf("%q, %d bytes", got, len(b.buf))
	}
}

// TestPatientReportsWhyTheGatewayRefuses: while a request is retried, the gateway's reason is printed once, after a moment. If the gateway
// recovers before that, nothing is printed.
//
//guarantee:a-log-that-could-not-write-continues-when-it-can
func TestPatientReportsWhyTheGatewayRefuses(t *testing.T) {
	var status atomic.Int32
	slow := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-slow
		}
		w.WriteHeader(int(status.Load()))
		fmt.Fprint(w, `{"error":{"code":"unavailable","message":"the log cannot write: no space left on device"}}`)
	}))
	defer srv.Close()
	out := &lockedBuffer{}
	p := &patient{out: out, at: srv.URL, quiet: time.Millisecond}
	h := &http.Client{Transport: p}
	ask := func(code int, path string) {
		t.Helper()
		status.Store(int32(code))
		method := http.MethodGet
		if path == "/slow" { // what asks for nothing to be waited for
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), "no space left") {
			t.Errorf("the body was lost: %q, %v", b, err)
		}
	}
	p.quiet = time.Hour
	ask(http.StatusServiceUnavailable, "/")
	ask(http.StatusOK, "/")
	if out.String() != "" {
		t.Errorf("it complains at once: %q", out)
	}
	ask(http.StatusServiceUnavailable, "/")
	p.quiet = time.Nanosecond
	for range 3 {
		ask(http.StatusServiceUnavailable, "/")
	}
	if got := out.String(); strings.Count(got, "the log cannot write: no space left on device: retrying") != 1 {
		t.Errorf("got %q", got)
	}
	ask(http.StatusOK, "/")
	go func() {
		for strings.Count(out.String(), "the log does not answer: retrying") == 0 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		close(slow)
	}()
	ask(http.StatusOK, "/slow")
}
