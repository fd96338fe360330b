package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// replayWorld is a log with a listener in this process. Gateways are processes of their own, so that their memory and processor time can
// be measured.
type replayWorld struct {
	program string
	shards  int
	dir     string
	server  *streams.Server
	bus     *streams.Bus
	nats    *nats.Conn // bare connection, over the same kind of socket as the gateway's
	js      jetstream.JetStream
	serial  counter
	gates   int
}

const (
	eventSubjects  = "sandjet.events.>"
	replayUser     = "bench"
	replayPassword = "bench-on-the-loopback" //nolint:gosec // of a server that ends with the run
	replayWithin   = 10 * time.Minute        // of one step
)

func openReplayWorld(ctx context.Context, program string, shards int) (_ *replayWorld, err error) {
	w := &replayWorld{program: program, shards: shards}
	if w.dir, err = os.MkdirTemp("", "sandjet-bench-"); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		if err != nil {
			w.close(ctx)
		}
	}()
	auth, err := natsauth.New(natsauth.Options{Users: []natsauth.User{{Name: replayUser, Password: replayPassword}}})
	if err != nil {
		return nil, fmt.Errorf("admit the benchmark's user: %w", err)
	}
	if w.server, err = streams.StartServer(ctx, embedded.Options{DataDir: filepath.Join(w.dir, "log"), Auth: auth}, fair.Shares{}); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	if w.bus, err = streams.Open(ctx, streams.Options{Server: w.server, Shards: shards}); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	if w.nats, err = nats.Connect(w.server.URL(), nats.UserInfo(replayUser, replayPassword)); err != nil {
		return nil, fmt.Errorf("bare: connect: %w", err)
	}
	if w.js, err = jetstream.New(w.nats); err != nil {
		return nil, fmt.Errorf("bare: open JetStream: %w", err)
	}
	return w, nil
}

func (w *replayWorld) close(ctx context.Context) {
	if w.nats != nil {
		w.nats.Close()
	}
	if w.bus != nil {
		_ = w.bus.Close(ctx)
	}
	if w.server != nil {
		w.server.Shutdown()
	}
	_ = os.RemoveAll(w.dir)
}

// event returns an event of about 300 bytes.
func (w *replayWorld) event(conv string) schemas.Event {
	now := time.Now()
	return schemas.Event{
		SpecVersion: "1.0", ID: "evt_bench_" + w.serial.next(), Type: schemas.Message, Source: "/accounts/" + string(benchAccount),
		Time: now.UTC(), Conversation: schemas.ConversationID(conv), Account: benchAccount, Data: stamped(now),
	}
}

// fill stores n events on each conversation, with the conversations interleaved.
func (w *replayWorld) fill(ctx context.Context, conversations []string, n int) error {
	const ahead = 512
	sent := make(chan streams.Future, ahead)
	confirmed := make(chan error, 1)
	go func() {
		var first error
		for f := range sent {
			if err := f.Wait(ctx); err != nil && first == nil {
				first = err
			}
		}
		confirmed <- first
	}()
	err := func() error {
		defer close(sent)
		for range n {
			for _, c := range conversations {
				f, err := streams.Events.PublishAsync(ctx, w.bus, w.event(c))
				if err != nil {
					return err
				}
				sent <- f
			}
		}
		return nil
	}()
	return errors.Join(err, <-confirmed)
}

// consumers returns the number of consumers of the event streams, which replay must not increase.
func (w *replayWorld) consumers(ctx context.Context) (int, error) {
	n := 0
	list := w.js.ListStreams(ctx, jetstream.WithStreamListSubject(eventSubjects))
	for info := range list.Info() {
		n += info.State.Consumers
	}
	if err := list.Err(); err != nil {
		return 0, fmt.Errorf("count consumers: %w", err)
	}
	return n, nil
}

// gate is a gateway in a process of its own.
type gate struct {
	cmd     *exec.Cmd
	address string
	key     string
	url     string
	errors  *strings.Builder
}

// open starts a gateway that allows twice as many sockets as given.
func (w *replayWorld) open(ctx context.Context, sockets int) (*gate, error) {
	w.gates++
	dir := filepath.Join(w.dir, "gateway"+strconv.Itoa(w.gates))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start a gateway: %w", err)
	}
	g := &gate{errors: new(strings.Builder)}
	g.cmd = exec.CommandContext(ctx, w.program, "gateway", "--json", "--data-dir", dir, "--listen", "127.0.0.1:0",
		"--nats-url", w.server.URL(), "--nats-user", replayUser, "--account", string(benchAccount), "--shards", strconv.Itoa(w.shards),
		"--max-sockets", strconv.Itoa(2*sockets), "--max-attachments", strconv.Itoa(2*sockets), "--replay-compression")
	g.cmd.Env = append(os.Environ(), "SANDJET_NATS_PASSWORD="+replayPassword, "SANDJET_KEY="+benchKey)
	g.cmd.Stderr = g.errors
	out, err := g.cmd.StdoutPipe()
	if err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a gateway: %w", err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var up struct {
		URL string `json:"url"`
	}
	if err == nil {
		err = json.Unmarshal(line, &up)
	}
	if err != nil {
		g.stop()
		return nil, fmt.Errorf("start a gateway: %w: %s", err, g.errors)
	}
	g.url, g.key = up.URL, benchKey
	u, err := url.Parse(up.URL)
	if err != nil {
		g.stop()
		return nil, fmt.Errorf("start a gateway: %w", err)
	}
	g.address = u.Host
	return g, nil
}

func (g *gate) stop() {
	_ = g.cmd.Process.Kill() // it stores nothing
	_ = g.cmd.Wait()         // it was killed, which is an error
}

// use is a process's use of resources.
type use struct {
	cpu        time.Duration
	resident   float64 // bytes
	inUse      float64 // bytes of heap and stacks
	goroutines float64
	files      float64 // limit of open files
}

// use reads the gateway's use of resources from its /metrics.
func (g *gate) use(ctx context.Context) (use, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+"/metrics", nil)
	if err != nil {
		return use{}, fmt.Errorf("ask for metrics: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return use{}, fmt.Errorf("ask for metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body) // the status is sufficient
		return use{}, fmt.Errorf("ask for metrics: %s: %s", resp.Status, text)
	}
	m := map[string]float64{}
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), " "); ok {
			m[name], _ = strconv.ParseFloat(value, 64) // comments have no value
		}
	}
	return use{
		cpu: time.Duration(m["process_cpu_seconds_total"] * float64(time.Second)), resident: m["process_resident_memory_bytes"],
		inUse: m["go_memstats_heap_inuse_bytes"] + m["go_memstats_stack_inuse_bytes"], goroutines: m["go_goroutines"],
		files: m["process_max_fds"],
	}, nil
}

// openFiles returns how many files this process may open.
func openFiles() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("ask for the limit of files: %w", err)
	}
	return l.Cur, nil
}

// crowd opens n sockets, some at a time, and makes each follow a conversation until it is live.
func (g *gate) crowd(ctx context.Context, n, room int, conv func(i int) string, after func(i int) []byte) ([]*follower, error) {
	const atOnce = 64 // below the gateway's limit of handshakes
	all := make([]*follower, n)
	err := each(n, atOnce, func(i int) (err error) {
		if all[i], err = dialFollower(ctx, g.address, g.key, room); err != nil {
			return err
		}
		if err := all[i].attach(conv(i), after(i)); err != nil {
			return err
		}
		return all[i].until(opLive)
	})
	if err != nil {
		cutAll(all)
		return nil, err
	}
	return all, nil
}

func cutAll(all []*follower) {
	for _, f := range all {
		if f != nil {
			f.cut()
		}
	}
}

// each calls do n times, in atOnce goroutines, and returns the errors.
func each(n, atOnce int, do func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, atOnce)
	for w := range atOnce {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += atOnce {
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func fromStart(int) []byte { return []byte(startCursor) }

func fromNow(int) []byte { return []byte(presentCursor) }
