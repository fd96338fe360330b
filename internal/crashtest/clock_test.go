package crashtest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/redistest"
	"github.com/sandjet/sandjet/schemas"
)

// clockVariable names a file with the number of seconds by which the wall clock of a process is ahead, as 8 bytes.
const clockVariable = "CRASHTEST_CLOCK"

// clockSource is added to the package time of programs that this test builds: a wall clock that can be set while they run,
// which a host's own cannot be for one process. The clock that measures what passes is left alone, as by settimeofday.
const clockSource = `package time

import (
	"syscall"
	"unsafe"
)

var wallAhead = func() *int64 {
	name, ok := syscall.Getenv("` + clockVariable + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("the clock of the test: " + err.Error())
	}
	defer syscall.Close(fd)
	b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("the clock of the test: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&b[0]))
}()
`

// buildWithClocks makes the program with wall clocks that can be set.
func buildWithClocks(ctx context.Context, t *testing.T) string {
	t.Helper()
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, pkg := t.TempDir(), filepath.Join(string(bytes.TrimSpace(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(pkg, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const read = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if !bytes.Contains(source, []byte(read)) {
		t.Fatal("this version of Go reads the clock in another way: this test must follow it")
	}
	changed := bytes.Replace(source, []byte(read), []byte(read+"\tsec += *wallAhead\n"), 1)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(pkg, "time.go"): filepath.Join(dir, "time.go"), filepath.Join(pkg, "wallahead.go"): filepath.Join(dir, "wallahead.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"time.go": changed, "wallahead.go": []byte(clockSource), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sandjet", "sandjet-box"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", dir+"/",
			"github.com/sandjet/sandjet/cmd/"+name)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build with another clock: %v\n%s", err, out)
		}
	}
	return filepath.Join(dir, "sandjet")
}

// withClocks gives each role a wall clock of its own.
func withClocks(t *testing.T, program string) option {
	t.Helper()
	return func(c *cluster, worker []string) []string {
		c.program, c.clocks = program, t.TempDir()
		for _, p := range c.roles {
			p.program, p.clock = program, c.clock(p.name)
		}
		for _, name := range []string{"server", "deliver", "gateway", "worker-1", "worker-2"} {
			if err := os.WriteFile(c.clock(name), make([]byte, 8), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return worker
	}
}

func (c *cluster) clock(name string) string { return filepath.Join(c.clocks, name) }

// setClock sets the wall clock of a role.
func (p *process) setClock(t *testing.T, ahead time.Duration) {
	t.Helper()
	f, err := os.OpenFile(p.clock, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0); err != nil {
		t.Fatal(err)
	}
}

// TestAClockThatIsSetEndsNothing: the wall clock of each role but the log's is set an hour ahead and an hour back, while it runs and before
// it starts. Calls and jobs that run and wait, a question to a person, a stream with a lifetime and a kept box stay as they are.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAClockThatIsSetEndsNothing(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "it builds the standard library anew")
	s := sizeOf()
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()
	sink := newReceiver(t, rand.New(rand.NewPCG(longtest.Seed(t), 1)))
	redis := redistest.Start(t)
	c := startCluster(ctx, t, withClocks(t, buildWithClocks(ctx, t)), withDelivery, withRedis(redis.URL()))
	c.subscribe(ctx, t, sink.server.URL)
	k := &keptBox{c: c}
	box := k.visit(ctx, t, 4, false)
	c.create(ctx, t, "/v1/accounts/me/sandboxes", `{"name":"asks","config":{"provider":"local","permissionMode":"ask"}}`)
	asks := bash(t, "asks", "true")
	asks.Sandbox = "asks"
	if status, answer := c.post(ctx, t, asks); status != http.StatusAccepted {
		t.Fatalf("what asks is answered %d %s", status, answer)
	}

	for _, p := range c.roles[1:] {
		if p.name == "worker-2" { // it is what worker-1 is
			continue
		}
		for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
			for _, restart := range []bool{false, true} {
				what := fmt.Sprintf("%s, %s, restarted %v", p.name, ahead, restart)
				c.log.note("--- clock: " + what)
				running := c.submit(ctx, t, k.next(2, "echo ID >> "+mark+"; sleep 3; echo done ID"))
				if restart {
					c.results(ctx, t, running) // what a worker has in flight ends with it
					p.kill()
				} else {
					c.awaitMarks(ctx, t, running)
				}
				p.setClock(t, ahead)
				if restart {
					c.revive(t, p)
					c.awaitWarning(ctx, t, p)
				}
				jobs := c.submitAs(ctx, t, k.next(1, "sleep 2; echo done ID"), true)
				for id, r := range c.results(ctx, t, append(running, jobs...)) {
					if r.Status != schemas.StatusCompleted {
						t.Errorf("%s: %s is %s: %s", what, id, r.Status, r.Text)
					}
				}
				for _, w := range jobs {
					c.jobEnds(ctx, t, what, w, sink)
				}
				c.stillWaits(ctx, t, what)
				now := k.visit(ctx, t, 4, false)
				if now != box && !restart {
					t.Errorf("%s: the box %s has become %s", what, box, now)
				}
				box = now
				p.setClock(t, 0)
			}
		}
	}
	for _, p := range c.roles {
		if !p.alive() {
			t.Errorf("%s has ended", p.name)
		}
	}
}

// TestTheLogsClockIsSetBack while calls run, at once or by a start after a kill, and set right again after a while; each worker is killed
// meanwhile. No call runs twice, and what ends while the clock is behind is seen at once.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestTheLogsClockIsSetBack(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "it builds the standard library anew")
	ctx, cancel := context.WithTimeout(t.Context(), sizeOf().ends)
	defer cancel()
	program := buildWithClocks(ctx, t)
	for _, back := range []time.Duration{4 * time.Minute, time.Hour} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %t", back, restart), func(t *testing.T) { setBack(ctx, t, program, back, restart) })
		}
	}
}

func setBack(ctx context.Context, t *testing.T, program string, back time.Duration, restart bool) {
	t.Helper()
	c := startCluster(ctx, t, withClocks(t, program))
	server, first, second := c.roles[0], c.roles[2], c.roles[3]
	k := &keptBox{c: c}
	set := func(ahead time.Duration) {
		if restart {
			server.kill()
		}
		server.setClock(t, ahead)
		if restart {
			c.revive(t, server)
		}
	}
	die := func(p *process) {
		p.kill()
		pause(ctx, time.Second)
		c.revive(t, p)
	}
	const command = "echo ID >> " + mark + "; sleep 3; echo done ID"
	before := c.submit(ctx, t, k.next(20, command))
	c.awaitMarks(ctx, t, before[:1])
	set(-back)
	die(first) // what it had in flight is redelivered when the clock is right
	behind := c.submit(ctx, t, k.next(40, command))
	c.awaitMarks(ctx, t, behind[:1])
	die(second)
	results := c.results(ctx, t, behind)
	set(0)
	maps.Copy(results, c.results(ctx, t, before))
	c.check(ctx, t, append(before, behind...), results)
}

// awaitMarks waits until calls run: a worker whose clock jumps while it proves a start takes that for a pause, and interrupts the call.
func (c *cluster) awaitMarks(ctx context.Context, t *testing.T, calls []wanted) {
	t.Helper()
	for _, w := range calls {
		for c.marks(t)[w.id] == 0 {
			if pause(ctx, 20*time.Millisecond); ctx.Err() != nil {
				t.Fatalf("%s does not begin", w.id)
			}
		}
	}
}

// awaitWarning waits until a process has said that its clock is wrong: it has really been set.
func (c *cluster) awaitWarning(ctx context.Context, t *testing.T, p *process) {
	t.Helper()
	for !c.log.has(p.name+": ", "host clock differs from the log's") {
		if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%s does not see that its clock was set", p.name)
		}
	}
}

// create makes a record.
func (c *cluster) create(ctx context.Context, t *testing.T, path, body string) {
	t.Helper()
	if status, answer, err := c.ask(ctx, http.MethodPost, path, json.RawMessage(body)); err != nil || status != http.StatusCreated {
		t.Fatalf("%s: %d %s %v", path, status, answer, err)
	}
}

// jobEnds waits until a job has settled, and its end was delivered.
func (c *cluster) jobEnds(ctx context.Context, t *testing.T, what string, w wanted, sink *receiver) {
	t.Helper()
	for ctx.Err() == nil {
		status, answer, err := c.ask(ctx, http.MethodGet, "/v1/jobs?limit=500", nil)
		var list struct {
			Jobs []schemas.Job `json:"jobs"`
		}
		if err != nil || status != http.StatusOK || json.Unmarshal(answer, &list) != nil {
			t.Fatalf("%s: the jobs cannot be listed: %d %.300s %v", what, status, answer, err)
		}
		for _, j := range list.Jobs {
			if string(j.Call) != w.id || !j.State.Final() {
				continue
			}
			if j.State != schemas.JobCompleted {
				t.Errorf("%s: the job of %s is %s: %+v", what, w.id, j.State, j.Completion)
			}
			sink.await(ctx, t, schemas.JobFinishedID(j.Account, j.ID))
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
	t.Errorf("%s: the job of %s does not end", what, w.id)
}

// stillWaits wants the question to a person to be open.
func (c *cluster) stillWaits(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	status, answer, err := c.ask(ctx, http.MethodGet, "/v1/calls/asks", nil)
	if err != nil || !bytes.Contains(answer, []byte("awaiting_approval")) {
		t.Errorf("%s: what waits for a person is %d %s %v", what, status, answer, err)
	}
}
