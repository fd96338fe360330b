package crashtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
)

// flood is one way in which a tenant can use up what all tenants share.
type flood struct {
	name    string
	short   bool                                  // it is part of the short run too
	needs   string                                // a command that makes what it needs
	refused bool                                  // nothing of it is taken
	prepare func(f *flooder, ctx context.Context) // makes what it needs, nil: nothing
	do      func(f *flooder, ctx context.Context)
}

// These make what floods need.
const (
	largeFiles = "head -c 5000000 /dev/zero | tr '\\0' a > large; head -c 30000000 /dev/zero | tr '\\0' a > larger"
	deepFiles  = `d=$(printf 'x%.0s' $(seq 200)); p=deep; for i in $(seq 14); do p=$p/$d; done; mkdir -p "$p"; cd "$p";` +
		` for i in $(seq 20); do touch $(seq $((i*100)) $((i*100+99))); done`
)

func floods() []flood {
	return []flood{
		{name: "edits that multiply a file", do: (*flooder).edits, needs: largeFiles, short: true},
		{name: "bodies that never come", do: (*flooder).stalledBodies, short: true},
		{name: "searches without end", do: (*flooder).searches, needs: largeFiles, short: true},
		{name: "message ids of others", do: (*flooder).messageIDs, short: true},
		{name: "connections to the log", do: (*flooder).connections},
		{name: "subscriptions, and events nobody reads", do: (*flooder).subscriptions},
		{name: "questions over NATS", do: (*flooder).questions},
		{name: "large publications", do: (*flooder).publications},
		{name: "the room of the log", do: (*flooder).fill},
		{name: "loops that calls leave behind", do: (*flooder).loops},
		{name: "processes without number", do: (*flooder).processes},
		{name: "very long paths", do: (*flooder).paths, needs: deepFiles},
		{name: "costly patterns", do: (*flooder).patterns, refused: true},
		{name: "records", do: (*flooder).records},
		{name: "approvals", do: (*flooder).approvals},
		{name: "background jobs", do: (*flooder).jobs},
		{name: "slow calls", do: (*flooder).slowCalls},
		{name: "waiting for results", do: (*flooder).waiters},
		{name: "event streams that nobody reads", do: (*flooder).readers},
	}
}

// flooder is a tenant that attacks the installation.
type flooder struct {
	*cluster
	t         *testing.T
	next      int    // of the quiet tenant's calls
	job       string // that it has started, where one is needed
	artifacts []schemas.Artifact
	nats      *nats.Conn
	http      *http.Client
	made      atomic.Int64 // calls
	sent      atomic.Int64 // what was answered, or went out
	taken     atomic.Int64 // and was not refused
	refusal   atomic.Value // the last answer that refuses something
}

// elsewhere is the address that the flood comes from.
var elsewhere = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}

func newFlooder(t *testing.T, c *cluster, q *quiet) *flooder {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: elsewhere, Timeout: time.Second}
	f := &flooder{cluster: c, t: t, next: q.next, nats: c.dial(t), // before the time of the flood begins
		http: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 256}}}
	t.Cleanup(f.http.CloseIdleConnections)
	return f
}

// count adds n to the requests that were answered, and also to the ones that were accepted if taken is set.
func (f *flooder) count(n int64, taken bool) {
	if f.sent.Add(n); taken {
		f.taken.Add(n)
	}
}

// ask sends a request once and counts it if there is a response. Without a response the status is 0.
func (f *flooder) ask(ctx context.Context, method, path string, body any) (status int, answer []byte) {
	var sent io.Reader = http.NoBody
	if body != nil {
		sent = bytes.NewReader(encode(body))
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+f.gateway+path, sent)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.key)
	req.Header.Set("Content-Type", "application/json")
	res, err := f.http.Do(req)
	if err != nil {
		pause(ctx, 10*time.Millisecond)
		return 0, nil
	}
	defer res.Body.Close()
	answer, _ = io.ReadAll(res.Body)
	if res.StatusCode >= http.StatusBadRequest {
		f.refusal.Store(fmt.Sprintf("%d %.200s", res.StatusCode, answer))
	}
	f.count(1, res.StatusCode < http.StatusBadRequest)
	return res.StatusCode, answer
}

// call sends a call and does not wait for it.
func (f *flooder) call(ctx context.Context, tool schemas.Tool, input any) (id string, status int) {
	return f.callWith(ctx, tool, input, "", 0)
}

func (f *flooder) callWith(ctx context.Context, tool schemas.Tool, input any, sandbox string,
	timeout time.Duration) (id string, status int) {
	id = fmt.Sprint("loud-", f.made.Add(1))
	r := request(id, tool, input)
	r.Sandbox, r.Timeout = sandbox, schemas.Duration(timeout)
	status, _ = f.ask(ctx, http.MethodPost, "/v1/calls", r)
	return id, status
}

// run sends a call and waits for its result.
func (f *flooder) run(ctx context.Context, tool schemas.Tool, input any) (r schemas.Result, err error) {
	id, status := f.callWith(ctx, tool, input, "", 5*time.Second)
	if status != http.StatusAccepted {
		return r, fmt.Errorf("%s is answered %d: %w", id, status, http.ErrNotSupported)
	}
	for ctx.Err() == nil {
		status, answer := f.ask(ctx, http.MethodGet, "/v1/calls/"+id+"?wait=10s", nil)
		if status == http.StatusOK {
			if err := json.Unmarshal(answer, &r); err != nil {
				return r, fmt.Errorf("%s: %w", id, err)
			}
			return r, nil
		}
	}
	return r, ctx.Err()
}

// many calls do again and again, with n goroutines, until ctx ends.
func many(ctx context.Context, n int, do func(i int)) {
	var all sync.WaitGroup
	var i atomic.Int64
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				do(int(i.Add(1)))
			}
		})
	}
	all.Wait()
}

func (f *flooder) edits(ctx context.Context) {
	twice := strings.Repeat("b", 2<<20)
	many(ctx, 4, func(int) {
		r, err := f.run(ctx, schemas.ToolEdit, schemas.EditInput{FilePath: "large", OldString: "a", NewString: twice, ReplaceAll: true})
		if err == nil && r.Status == schemas.StatusCompleted {
			f.t.Error("5 MB became 10 TB")
		}
	})
}

// stalledBodies sends requests, with a key and without, whose headers announce a body that is never sent.
func (f *flooder) stalledBodies(ctx context.Context) {
	f.hold(ctx, f.gateway, 600, func(i int) string {
		key := ""
		if i%2 == 0 {
			key = "Authorization: Bearer " + f.key + "\r\n"
		}
		path := []string{"POST /v1/calls", "POST /nowhere", "GET /healthz", "PUT /v1/streams/x"}[i%4]
		return path + " HTTP/1.1\r\nHost: x\r\n" + key + "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
	})
}

// hold opens connections, writes a text to each and reads nothing, until the flood is over.
func (f *flooder) hold(ctx context.Context, address string, n int, text func(i int) string) {
	dialer := &net.Dialer{LocalAddr: elsewhere, Timeout: time.Second}
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	for i := 0; ctx.Err() == nil; i++ {
		if len(open) >= n {
			pause(ctx, time.Second)
			continue
		}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			pause(ctx, 10*time.Millisecond)
			continue
		}
		open = append(open, conn)
		if _, err := io.WriteString(conn, text(i)); err == nil {
			f.count(1, true)
		}
	}
}

func (f *flooder) searches(ctx context.Context) {
	many(ctx, 32, func(int) {
		_, _ = f.run(ctx, schemas.ToolGrep, schemas.GrepInput{Pattern: "([ab]){0,900}[cd]", Path: "larger"})
	})
}

// messageIDs publishes under the ids that the quiet tenant is going to use.
func (f *flooder) messageIDs(ctx context.Context) {
	many(ctx, 1, func(i int) {
		pause(ctx, time.Millisecond)
		m := nats.NewMsg("sandjet.calls.auto." + f.account)
		m.Header.Set(nats.MsgIdHdr, messageID(f.next+i))
		m.Data = []byte(`{"tool":"glob","input":{"pattern":"*"}}`)
		if _, err := f.nats.RequestMsgWithContext(ctx, m); err == nil {
			f.count(1, true)
		}
	})
}

// connections opens more of them than there may be, and keeps them.
func (f *flooder) connections(ctx context.Context) {
	f.subscribed(ctx, 300, "sandjet.live."+f.account+".>")
}

// subscriptions makes events that are sent to many who never read, and subscribes without end.
func (f *flooder) subscriptions(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { f.subscribed(ctx, 20, "sandjet.live."+f.account+".>") })
	all.Go(func() {
		for i := 0; ctx.Err() == nil && i < 20_000; i++ {
			if _, err := f.nats.SubscribeSync(fmt.Sprintf("sandjet.live.%s.%d", f.account, i)); err == nil {
				f.count(1, true)
			}
			if i%500 == 0 {
				pause(ctx, 50*time.Millisecond)
			}
		}
	})
	text := strings.Repeat("x", 40<<10)
	many(ctx, 4, func(i int) {
		f.ask(ctx, http.MethodPost, "/v1/conversations/noise/events", schemas.AppendedEvent{
			ID: fmt.Sprint("noise-", i), Type: schemas.Message, Data: fmt.Appendf(nil, `{"text":%q}`, text),
		})
	})
}

// subscribed connects and subscribes by the text protocol, and never reads.
func (f *flooder) subscribed(ctx context.Context, n int, subject string) {
	u, err := url.Parse(f.credential(f.t).URL)
	if err != nil {
		f.t.Error(err)
		return
	}
	f.hold(ctx, u.Host, n, func(int) string {
		return fmt.Sprintf(`CONNECT {"user":%q,"pass":%q,"verbose":false,"pedantic":false}`+"\r\nSUB %s 1\r\n", f.account, f.key, subject)
	})
}

// questions asks many times what the limit of a tenant is.
func (f *flooder) questions(ctx context.Context) {
	conns := []*nats.Conn{f.nats, f.dial(f.t)}
	many(ctx, 2, func(i int) {
		conn := conns[i%2]
		for range 100 {
			if conn.PublishRequest("sandjet.rpc.call."+f.account, "_INBOX_"+f.account, []byte(`{"x":1}`)) == nil {
				f.count(1, true)
			}
		}
		_ = conn.FlushTimeout(time.Second)
		pause(ctx, 10*time.Millisecond)
	})
	for _, conn := range conns {
		conn.Close()
	}
}

func (f *flooder) publications(ctx context.Context) {
	content := strings.Repeat("x", 600<<10)
	many(ctx, 16, func(int) {
		b, err := json.Marshal(request(fmt.Sprint("loud-", f.made.Add(1)), schemas.ToolWrite,
			schemas.WriteInput{FilePath: "published", Content: content}))
		if err != nil {
			panic(err)
		}
		if _, err := f.nats.RequestWithContext(ctx, "sandjet.calls.auto."+f.account, b); err == nil {
			f.count(1, true)
		}
	})
}

// fill keeps as much on the log as it may.
func (f *flooder) fill(ctx context.Context) {
	text := strings.Repeat("0123456789abcdef", 1<<15) // 512 KiB
	many(ctx, 4, func(i int) {
		f.ask(ctx, http.MethodPut, fmt.Sprint("/v1/streams/fill/", i), map[string]string{"text": text + fmt.Sprint(i)})
	})
}

func (f *flooder) bash(ctx context.Context, atOnce int, command string, background bool) {
	many(ctx, atOnce, func(int) { f.call(ctx, schemas.ToolBash, schemas.BashInput{Command: command, Background: background}) })
}

func (f *flooder) loops(ctx context.Context) {
	many(ctx, 1, func(int) {
		_, _ = f.run(ctx, schemas.ToolBash,
			schemas.BashInput{Command: "for i in 1 2 3 4 5 6; do (while :; do :; done) >/dev/null 2>&1 </dev/null & done; echo left"})
		pause(ctx, time.Second)
	})
}

func (f *flooder) processes(ctx context.Context) {
	many(ctx, 1, func(int) {
		_, _ = f.run(ctx, schemas.ToolBash, schemas.BashInput{Command: "b() { b | b & }; b >/dev/null 2>&1 </dev/null; echo left"})
		pause(ctx, time.Second)
	})
}

func (f *flooder) paths(ctx context.Context) {
	many(ctx, 16, func(i int) {
		if i%2 == 0 {
			_, _ = f.run(ctx, schemas.ToolGlob, schemas.GlobInput{Pattern: "**"})
		} else {
			_, _ = f.run(ctx, schemas.ToolGrep, schemas.GrepInput{Pattern: "x", Path: "deep"})
		}
	})
}

func (f *flooder) patterns(ctx context.Context) {
	many(ctx, 16, func(i int) {
		if i%2 == 0 {
			_, _ = f.run(ctx, schemas.ToolGlob, schemas.GlobInput{Pattern: strings.Repeat("{a,b}", 9) + strings.Repeat("*?", 1000)})
		} else {
			_, _ = f.run(ctx, schemas.ToolGrep, schemas.GrepInput{Pattern: strings.Repeat(`\pL`, 2700)})
		}
	})
}

func (f *flooder) records(ctx context.Context) {
	many(ctx, 16, func(i int) {
		f.ask(ctx, http.MethodPost, "/v1/accounts/me/sandboxes",
			map[string]any{"name": fmt.Sprint("s", i), "config": map[string]any{"provider": "local"}})
		f.ask(ctx, http.MethodGet, "/v1/accounts/me/sandboxes", nil)
	})
}

func (f *flooder) approvals(ctx context.Context) {
	f.ask(ctx, http.MethodPost, "/v1/accounts/me/sandboxes",
		map[string]any{"name": "asks", "config": map[string]any{"provider": "local", "permissionMode": "ask"}})
	many(ctx, 16, func(i int) {
		f.callWith(ctx, schemas.ToolBash, schemas.BashInput{Command: "true"}, "asks", 0)
		if i%10 == 0 {
			f.ask(ctx, http.MethodGet, "/v1/approvals", nil)
		}
	})
}

func (f *flooder) jobs(ctx context.Context) { f.bash(ctx, 16, "sleep 1; seq 2000", true) }

func (f *flooder) slowCalls(ctx context.Context) { f.bash(ctx, 16, "sleep 0.3; seq 2000", false) }

// waiters wait for one result by the hundred.
func (f *flooder) waiters(ctx context.Context) {
	many(ctx, 300, func(int) {
		_, _ = f.run(ctx, schemas.ToolBash, schemas.BashInput{Command: "sleep 0.5"})
	})
}

func (f *flooder) readers(ctx context.Context) {
	f.hold(ctx, f.gateway, 600, func(i int) string {
		return fmt.Sprintf("GET /v1/conversations/c-loud-%d/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nAccept: "+
			"text/event-stream\r\n\r\n", i, f.key)
	})
}
