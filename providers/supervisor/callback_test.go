//go:build linux

package supervisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// patience is when a test fails.
const patience = 60 * time.Second

// token is what the tests report with.
const token = "acct_test.s3cr3t-T0ken_that_must_not_be_seen_anywhere"

// quick makes a second attempt come at once.
func quick() supervisor.Options {
	return supervisor.Options{RetryFirst: 50 * time.Millisecond, RetryMost: 100 * time.Millisecond}
}

// box is a kept box and what starts jobs in it.
type box struct {
	p   providers.Provider
	ref schemas.Ref
}

func reserve(t *testing.T, p providers.Provider) box {
	t.Helper()
	r, ok := providers.As[providers.Reserver](p)
	if !ok {
		t.Fatalf("%T keeps no boxes", p)
	}
	ref, err := r.Reserve(t.Context(), t.Name(), providers.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	return box{p, ref}
}

// start starts script as a job.
func (b box) start(t *testing.T, script string, o providers.JobOptions) schemas.JobRef {
	t.Helper()
	return b.begin(t, providers.Command{Script: script, Sandbox: b.ref}, o)
}

func (b box) begin(t *testing.T, cmd providers.Command, o providers.JobOptions) schemas.JobRef {
	t.Helper()
	s, ok := providers.As[providers.JobStarter](b.p)
	if !ok {
		t.Fatalf("%T has no jobs", b.p)
	}
	ref, err := s.StartJob(t.Context(), schemas.NewJobID(), cmd, o)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func (b box) control(t *testing.T) providers.JobController {
	t.Helper()
	c, ok := providers.As[providers.JobController](b.p)
	if !ok {
		t.Fatalf("%T has no control of jobs", b.p)
	}
	return c
}

// sh runs script in the box, beside the jobs.
func (b box) sh(t *testing.T, script string) string {
	t.Helper()
	res, err := b.p.Run(t.Context(), providers.Command{Script: script, Sandbox: b.ref})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: exit code %d, %v (stderr %q)", script, res.ExitCode, err, res.Stderr)
	}
	return strings.TrimSuffix(string(res.Stdout), "\n")
}

// end waits for the end of a job.
func (b box) end(t *testing.T, ref schemas.JobRef) providers.JobEnd {
	t.Helper()
	var st providers.JobStatus
	testwait.Eventually(t, "the end of the job", func() bool {
		var err error
		if st, err = b.control(t).JobStatus(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		return !st.Running
	})
	return st.End
}

// listener is a gateway that gives the configured answers, then 204.
type listener struct {
	mu      sync.Mutex
	answers []int
	heard   chan *http.Request
	bodies  chan []byte
}

func newListener(answers ...int) *listener {
	return &listener{answers: answers, heard: make(chan *http.Request, 100), bodies: make(chan []byte, 100)}
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	status := http.StatusNoContent
	if len(l.answers) > 0 {
		status, l.answers = l.answers[0], l.answers[1:]
	}
	l.mu.Unlock()
	w.WriteHeader(status)
	l.bodies <- body
	l.heard <- r
}

// next returns the next callback, checked for what all have in common.
func (l *listener) next(t *testing.T) schemas.JobCallback {
	t.Helper()
	select {
	case r := <-l.heard:
		if r.Method != http.MethodPost || r.Header.Get("X-Job-Token") != token || r.URL.Path != "/sandbox-jobs/x/complete" ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
		}
	case <-time.After(patience):
		t.Fatalf("no callback came within %v", patience)
	}
	body := <-l.bodies
	c, err := schemas.DecodeJobCallback(body)
	if err != nil {
		t.Fatalf("%v: %.300s", err, body)
	}
	return c
}

func options(url string) providers.JobOptions {
	return providers.JobOptions{Callback: &providers.Callback{URL: url + "/sandbox-jobs/x/complete", Token: token}}
}

func TestCallbackIsRepeatedUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers  []int
		attempts int
		reported string
	}{
		"at once":           {nil, 1, "204"},
		"after two errors":  {[]int{500, 503}, 3, "204"},
		"already settled":   {[]int{502, 409}, 2, "409"},
		"nobody knows it":   {[]int{404}, 1, "404"},
		"not let in at all": {[]int{401, 403, 429, 301, 200}, 5, "200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newListener(c.answers...)
			server := httptest.NewServer(l)
			defer server.Close()
			b := reserve(t, open(t, quick()))
			ref := b.start(t, "echo out; exit 3", options(server.URL))
			for range c.attempts {
				got := l.next(t)
				if r := got.Response; got.Status != "failed" || r == nil || r.ExitCode == nil || *r.ExitCode != 3 ||
					r.Logs != "out\n" || r.LogBytes != 4 {
					t.Errorf("the callback says %+v, %+v", got, got.Response)
				}
			}
			testwait.Eventually(t, "the last word on it", func() bool {
				return b.sh(t, `d=~/.sandjet-jobs/`+string(ref.ID)+`; [ -e "$d/callback" ] || cat "$d/reported"`) == c.reported
			})
			if n := len(l.heard); n > 0 {
				t.Errorf("it was told %d times too often", n)
			}
		})
	}
}

func TestCallbackReachesAGatewayThatWasAway(t *testing.T) {
	t.Parallel()
	address, comeBack := away(t)
	b := reserve(t, open(t, quick()))
	ref := b.start(t, "true", options("http://"+address))
	b.end(t, ref)
	testwait.Eventually(t, "an attempt in vain", func() bool {
		return strings.Contains(b.sh(t, `cat ~/.sandjet-jobs/`+string(ref.ID)+`/reported 2>/dev/null; true`), "0")
	})
	l := newListener()
	server := &http.Server{Handler: l, ReadHeaderTimeout: patience}
	back := comeBack()
	go func() { _ = server.Serve(back) }() // ends with Close
	defer server.Close()
	if got := l.next(t); got.Status != "completed" || *got.Response.ExitCode != 0 {
		t.Errorf("the callback says %+v", got)
	}
}

// away is an address of our own where connections are refused until comeBack listens there: a port that was released meanwhile may be
// given to another test.
func away(t *testing.T) (address string, comeBack func() net.Listener) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "away")
	t.Cleanup(func() { _ = file.Close() })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	bound, ok := name.(*unix.SockaddrInet4)
	if !ok {
		t.Fatalf("the name of the socket is a %T", name)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.Port), func() net.Listener {
		if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
			t.Fatal(err)
		}
		l, err := net.FileListener(file) // with a descriptor of its own
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func TestCallbackByEachClient(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"curl", "wget", "python3", "bash"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			l := newListener(500, 204)
			server := httptest.NewServer(l)
			defer server.Close()
			b := reserve(t, clients{open(t, quick()), toolbox(t, client)})
			s := supervisor.Wrap(b.p, quick())
			ref := box{s, b.ref}.start(t, `printf 'a"\\\t\001\377\303\251\n'; exit 1`, options(server.URL))
			for range 2 {
				got := l.next(t)
				want := "a\"\\\t\x01\uFFFDé\n"
				if got.Response == nil || got.Response.Logs != want || got.Response.LogBytes != 9 {
					t.Errorf("the callback says %+v, %+v", got, got.Response)
				}
			}
			box{s, b.ref}.end(t, ref)
		})
	}
}

// clients is a provider whose runs see the programs of one directory only.
type clients struct {
	providers.Provider

	dir string
}

func (c clients) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	r, _ := providers.As[providers.Reserver](c.Provider)
	return r.Reserve(ctx, key, spec)
}

func (c clients) Release(ctx context.Context, ref schemas.Ref) error {
	r, _ := providers.As[providers.Reserver](c.Provider)
	return r.Release(ctx, ref)
}

func (c clients) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	cmd.Script = "PATH='" + c.dir + "'\n" + cmd.Script
	return c.Provider.Run(ctx, cmd)
}

// toolbox is a directory with what the supervisor needs, and one program to reach the network with.
func toolbox(t *testing.T, client string) string {
	t.Helper()
	dir := t.TempDir()
	tools := strings.Fields("base64 bash cat dd df env grep head ln mkdir mkfifo mv od rm sleep stat tail timeout wc setsid chmod")
	for _, tool := range append(tools, client) {
		path, err := exec.LookPath(tool)
		if tool == "python3" && err == nil { // it may be a script that looks for the real one
			out, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
			if err == nil {
				path = strings.TrimSpace(string(out))
			}
		}
		if err != nil {
			if tool == client && client != "curl" { // one of several ways: the gate installs the one
				t.Skipf("this host has no %s", tool)
			}
			longtest.Missing(t, "this host has no %s", tool)
		}
		if err := os.Symlink(path, filepath.Join(dir, tool)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCallbackCarriesTheEndOfLongOutput(t *testing.T) {
	t.Parallel()
	l := newListener()
	server := httptest.NewServer(l)
	defer server.Close()
	b := reserve(t, open(t, quick()))
	b.start(t, "head -c 100000 /dev/urandom; echo; yes é | head -n 20000 | tr -d '\\n'", options(server.URL))
	got := l.next(t)
	if got.Status != "completed" || got.Response.LogBytes != 140001 {
		t.Errorf("the callback says %s, %d bytes", got.Status, got.Response.LogBytes)
	}
	if logs := schemas.TailText(got.Response.Logs, schemas.MaxJobLogs); logs != strings.Repeat("é", 16384) {
		t.Errorf("%d bytes of logs, from %q", len(logs), logs[:min(40, len(logs))])
	}
}

func TestCallbackIsMadeOfAnyBytes(t *testing.T) {
	t.Parallel()
	l := newListener()
	server := httptest.NewServer(l)
	defer server.Close()
	b := reserve(t, open(t, quick()))
	b.start(t, "head -c 32768 /dev/urandom", options(server.URL))
	if got := l.next(t); got.Response.LogBytes != 32768 || got.Response.Logs == "" {
		t.Errorf("%d bytes, %d of logs", got.Response.LogBytes, len(got.Response.Logs))
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	b.begin(t, providers.Command{Script: "head -c 256", Stdin: all, Sandbox: b.ref}, options(server.URL))
	var wanted string
	quoted, err := json.Marshal(string(all)) // replaces what is no UTF-8, as the program must
	if err == nil {
		err = json.Unmarshal(quoted, &wanted)
	}
	if got := l.next(t); err != nil || got.Response.Logs != wanted {
		t.Errorf("%q, want %q (%v)", got.Response.Logs, wanted, err)
	}
}

func TestCallbackReportsWhoEndedTheJob(t *testing.T) {
	t.Parallel()
	l := newListener()
	server := httptest.NewServer(l)
	defer server.Close()
	b := reserve(t, open(t, quick()))
	ref := b.start(t, "exec sleep 600", options(server.URL))
	if err := b.control(t).StopJob(t.Context(), ref, patience); err != nil {
		t.Fatal(err)
	}
	if r := l.next(t).Response; !r.Stopped || r.TimedOut || *r.ExitCode != 143 {
		t.Errorf("stopped: %+v", r)
	}
	b.begin(t, providers.Command{Script: "exec sleep 600", Timeout: time.Second, Sandbox: b.ref}, options(server.URL))
	if r := l.next(t).Response; r.Stopped || !r.TimedOut {
		t.Errorf("expired: %+v", r)
	}
	b.start(t, "kill -9 $PPID; sleep 0.2; exit 3", options(server.URL))
	if c := l.next(t); c.Status != "failed" || c.Response.ExitCode != nil || c.Error == "" {
		t.Errorf("nobody knows how it ended: %+v, %+v", c, c.Response)
	}
	b.start(t, "rm -rf ~/.sandjet-jobs; exit 6", options(server.URL))
	if c := l.next(t); c.Response.ExitCode == nil || *c.Response.ExitCode != 6 {
		t.Errorf("it had removed its directory: %+v, %+v", c, c.Response)
	}
}

//guarantee:a-jobs-token-is-its-own
func TestTokenIsNotSeen(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"curl", "wget", "python3", "bash"} {
		t.Run(client, func(t *testing.T) {
			if client == "wget" || client == "python3" {
				longtest.Only(t, "the same by another client")
			}
			tokenIsNotSeen(t, client)
		})
	}
}

// tokenIsNotSeen looks at all processes and files while a job starts, runs, ends and reports.
func tokenIsNotSeen(t *testing.T, client string) {
	t.Helper()
	t.Parallel()
	l := newListener(500, 500, 500, 204)
	server := httptest.NewServer(l)
	defer server.Close()
	inner := open(t, quick())
	b := reserve(t, clients{inner, toolbox(t, client)})
	b.p = supervisor.Wrap(b.p, quick())
	home := b.sh(t, "echo ~")

	stop, seen := make(chan struct{}), make(chan string, 1)
	looks := 0
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			looks++
			if where := secretSeen(home); where != "" {
				seen <- where
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	// Variables of the job have the names that the program uses.
	cmd := providers.Command{
		Script: "echo begun; env; cat; exit 1", Sandbox: b.ref,
		Env: map[string]string{"token": "x", "url": "x", "body": "x", "status": "x", "a": "x", "SHELLOPTS": "allexport"},
	}
	ref := b.begin(t, cmd, options(server.URL))
	if _, err := b.control(t).WriteJob(t.Context(), ref, []byte("text\n"), true); err != nil {
		t.Error(err)
	}
	for range 4 {
		if got := l.next(t); strings.Contains(got.Response.Logs, token) {
			t.Error("the job knows the token")
		}
	}
	close(stop)
	looking.Wait()
	select {
	case where := <-seen:
		t.Errorf("the token is in %s", where)
	default:
	}
	t.Logf("looked %d times", looks)
}

// secretSeen returns where the token stands: in the arguments or variables of a process or in a
// file of the box.
func secretSeen(home string) string {
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ", home + "/.sandjet-jobs/*/*"} {
		files, _ := filepath.Glob(pattern) // the pattern is right
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
				continue
			}
			if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte(token)) {
				return file
			}
		}
	}
	return ""
}
