package crashtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

// mostMemory is what no process may hold at any time, whatever a tenant sends and asks for.
const mostMemory = 3 << 30

// heavyFloods are ways to have an installation hold large things in memory or on a disk, with few requests.
func heavyFloods() []flood {
	return []flood{
		{name: "looks at a call with a large input", prepare: (*flooder).parkLarge, do: (*flooder).looks},
		{name: "waits for a call with a large input", prepare: (*flooder).parkLarge, do: (*flooder).waits, short: true},
		{name: "pages of large events", prepare: (*flooder).largeEvents, do: (*flooder).pages, short: true},
		{name: "unread pages of large events", prepare: (*flooder).largeEvents, do: (*flooder).untakenPages},
		{name: "event streams of large events, each from a place of its own", prepare: (*flooder).largeEvents, do: (*flooder).untakenStreams},
		{name: "large records, made and deleted", do: (*flooder).largeRecords, short: true},
		{name: "large records, and lists of them", do: (*flooder).keptRecords},
		{name: "events for a hundred endpoints", prepare: (*flooder).endpoints, do: (*flooder).fanOut, short: true},
		{name: "replays for a hundred endpoints", prepare: (*flooder).delivered, do: (*flooder).replays, refused: true},
		{name: "endpoints with ever other URLs", prepare: (*flooder).endpoints, do: (*flooder).otherURLs},
		{name: "unread large results", prepare: (*flooder).largeResults, do: (*flooder).untakenResults},
		{name: "lists of calls with large results", prepare: (*flooder).largeResults, do: (*flooder).callLists},
		{name: "unread logs of a job", prepare: (*flooder).printingJob, do: (*flooder).untakenLogs},
		{name: "questions about a job", prepare: (*flooder).printingJob, do: (*flooder).jobQuestions},
		{name: "background jobs that wait, with long commands", do: (*flooder).longCommands},
		{name: "lists in which nothing is found", prepare: (*flooder).manyJobs, do: (*flooder).emptyLists},
		{name: "calls with the largest input", do: (*flooder).largestInputs},
		{name: "questions to a person, of control characters", prepare: (*flooder).asks, do: (*flooder).unreadableInputs},
		{name: "manifests against many records", prepare: (*flooder).manyAgents, do: (*flooder).manifests},
		{name: "arrays for durable streams", do: (*flooder).durableArrays},
		{name: "many small durable messages", prepare: (*flooder).durableMessages, do: (*flooder).durablePages},
		{name: "bodies with many members", do: (*flooder).members, refused: true},
		{name: "connections that say nothing over HTTP/2", do: (*flooder).silentHTTP2},
		{name: "connections that do not say who they are", do: (*flooder).silentNATS},
		{name: "what needs no key", do: (*flooder).keyless},
		{name: "outputs of background jobs", do: (*flooder).outputs, short: true},
		{name: "files without a name", do: (*flooder).unnamedFiles},
	}
}

// floodsOfALog is how many floods one installation gets. The tenant of each may fill its share of the log, and the shares of several
// tenants fill it: then new work of all is refused, as documented.
const floodsOfALog = 8

// TestHeavyFloodsHaveABound: one tenant makes the installation hold as much as it can, in each way that we know of, on a disk of 3 GB. No
// process ever holds 3 GiB or ends. Each call of another tenant has its result; in the long form it is not much later than without the
// flood. What was held is released.
//
//guarantee:what-one-tenant-can-do-to-another
func TestHeavyFloodsHaveABound(t *testing.T) {
	t.Parallel()
	size := floodSizeOf(t)
	floods := slices.DeleteFunc(append(heavyFloods(), skillFloods()...), func(one flood) bool { return !size.all && !one.short })
	n := 0
	for some := range slices.Chunk(floods, floodsOfALog) {
		n++
		t.Run(fmt.Sprint("log ", n), func(t *testing.T) { heavyFloodsOfALog(t, size, some) })
	}
}

// heavyFloodsOfALog runs floods one after the other on an installation of their own.
func heavyFloodsOfALog(t *testing.T, size floodSize, floods []flood) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*sizeOf().ends)
	defer cancel()
	c := startCluster(ctx, t, smallDisk(t, "3g"), withDelivery, withStrangers)
	q := newQuiet(ctx, t, c.tenant(ctx, t, "quiet"))
	undisturbed := q.whileRuns(ctx, t, longtest.Scale(size.calls, 100), func() {})
	t.Logf("undisturbed: %s", spread(undisturbed))
	before := c.memory()
	var beside []time.Duration
	for _, one := range floods {
		t.Run(one.name, func(t *testing.T) {
			took := c.heavilyFlooded(ctx, t, one, q)
			if beside = append(beside, took...); size.all { // in the short form other tests run beside it
				servedAsWell(t, took, undisturbed)
			}
		})
	}
	if !size.all { // the collector may take minutes
		return
	}
	t.Logf("the quiet tenant beside all floods: %s", spread(beside))
	for name, held := range c.heapsBecome(ctx, 128<<20) {
		t.Errorf("%s holds %d MiB when all is over; at the start it was %d", name, held>>20, before[name]>>20)
	}
}

// withStrangers lets accounts be made that may use what is off by default, and shows how much each role holds.
func withStrangers(c *cluster, worker []string) []string {
	c.gatewayFlags = append(c.gatewayFlags, "--admin-key", adminKey, "--durable-streams")
	c.metrics = map[string]string{"gateway": c.gateway}
	c.environment = append(c.environment, fmt.Sprint("GOMEMLIMIT=", mostMemory/4*3)) // as a control group of that size has it
	return append(worker, "--workspace-quota", "64MiB")
}

// heavilyFlooded has one flood run beside the calls of the quiet tenant, by a tenant of its own, and watches the memory of all processes. It
// returns how long these calls took.
func (c *cluster) heavilyFlooded(ctx context.Context, t *testing.T, one flood, q *quiet) []time.Duration {
	t.Helper()
	size := floodSizeOf(t)
	f := newFlooder(t, c.tenant(ctx, t, "loud"), q)
	c.log.note("--- flood: " + one.name)
	if one.prepare != nil {
		one.prepare(f, ctx)
	}
	f.sent.Store(0)
	f.taken.Store(0)
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	most := map[string]int64{}
	watch.Go(func() {
		for watching.Err() == nil {
			for name, bytes := range c.memory() {
				most[name] = max(most[name], bytes)
			}
			pause(watching, 50*time.Millisecond)
		}
	})
	took := q.whileRuns(ctx, t, size.calls/2, func() {
		flooding, over := context.WithTimeout(ctx, patience)
		var end sync.WaitGroup
		end.Go(func() {
			for pause(flooding, size.lasts); flooding.Err() == nil && !f.cameIn(one); pause(flooding, 50*time.Millisecond) {
			}
			over()
		})
		one.do(f, flooding)
		over()
		end.Wait()
	})
	stop()
	watch.Wait()
	var words []string
	for _, p := range c.roles {
		words = append(words, fmt.Sprintf("%s %d", p.name, most[p.name]>>20))
		if most[p.name] > mostMemory {
			t.Errorf("%s held %d MiB", p.name, most[p.name]>>20)
		}
		if !p.alive() {
			t.Fatalf("%s has ended", p.name)
		}
	}
	t.Logf("%d sent, %d taken; MiB: %s; the quiet tenant: %s", f.sent.Load(), f.taken.Load(), strings.Join(words, ", "), spread(took))
	if !f.cameIn(one) {
		t.Errorf("nothing of the flood has come in: %v", f.refusal.Load())
	}
	return took
}

// cameIn reports whether the installation has answered any request of the flood, and accepted one unless all are to be refused. On a busy
// machine that may take longer than the flood is to last.
func (f *flooder) cameIn(one flood) bool {
	return f.sent.Load() > 0 && (f.taken.Load() > 0 || one.refused)
}

// memory returns the resident memory in bytes of each role that runs.
func (c *cluster) memory() map[string]int64 {
	held := map[string]int64{}
	for _, p := range c.roles {
		p.mu.Lock()
		cmd := p.cmd
		p.mu.Unlock()
		if cmd == nil {
			continue
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", cmd.Process.Pid))
		fields := strings.Fields(string(data))
		if err != nil || len(fields) < 2 {
			continue
		}
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		held[p.name] = pages * int64(os.Getpagesize())
	}
	return held
}

// heapsBecome waits until each role that reports metrics has at most that many bytes on its heap, for three minutes at most. It returns
// the heaps that are still larger.
func (c *cluster) heapsBecome(ctx context.Context, most int64) (large map[string]int64) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute) // the collector runs every two at the latest
	defer cancel()
	for {
		large = map[string]int64{}
		for name, address := range c.metrics {
			if n := c.heap(ctx, address); n > most {
				large[name] = n
			}
		}
		if len(large) == 0 || ctx.Err() != nil {
			return large
		}
		pause(ctx, time.Second)
	}
}

func (c *cluster) heap(ctx context.Context, address string) (bytes int64) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_heap_alloc_bytes "); ok {
			n, _ := strconv.ParseFloat(value, 64)
			bytes = int64(n)
		}
	}
	return bytes
}

// must sends a request that the flood needs, again while it is answered 429 or not at all, and returns a field of the response. It fails
// the test if the request is refused.
func (f *flooder) must(ctx context.Context, method, path string, body any, field string) string {
	f.t.Helper()
	for range 20 {
		status, answer := f.ask(ctx, method, path, body)
		if status == http.StatusTooManyRequests || status == 0 {
			pause(ctx, 200*time.Millisecond)
			continue
		}
		if status >= http.StatusBadRequest {
			f.t.Fatalf("%s %s: %d %.300s", method, path, status, answer)
		}
		var fields map[string]any
		_ = json.Unmarshal(answer, &fields)
		value, _ := fields[field].(string)
		return value
	}
	f.t.Fatalf("%s %s is not taken", method, path)
	return ""
}

// untaken opens n connections, sends a GET on each and does not read the response, until the flood is over.
func (f *flooder) untaken(ctx context.Context, n int, path func(i int) string, accept string) {
	f.hold(ctx, f.gateway, n, func(i int) string {
		return "GET " + path(i) + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.key + "\r\nAccept: " + accept + "\r\n\r\n"
	})
}

// more returns n in the long form of the test, and a tenth of it in the short one.
func more(n int) int {
	if longtest.Asked() {
		return n
	}
	return n / 10
}

func (f *flooder) asks(ctx context.Context) {
	f.must(ctx, http.MethodPost, "/v1/accounts/me/sandboxes",
		map[string]any{"name": "asks", "config": map[string]any{"provider": "local", "permissionMode": "ask"}}, "")
}

// parkLarge sends a call with a large input that waits for the approval of a person.
func (f *flooder) parkLarge(ctx context.Context) {
	f.asks(ctx)
	r := request("large", schemas.ToolWrite, schemas.WriteInput{FilePath: "large", Content: strings.Repeat("<", 5_000_000)})
	r.Sandbox = "asks"
	f.must(ctx, http.MethodPost, "/v1/calls", r, "")
}

func (f *flooder) looks(ctx context.Context) {
	many(ctx, 64, func(i int) {
		f.ask(ctx, http.MethodGet, []string{"/v1/calls/large", "/v1/calls/large/status", "/v1/calls?limit=100"}[i%3], nil)
	})
}

func (f *flooder) waits(ctx context.Context) {
	f.untaken(ctx, more(2000), func(int) string { return "/v1/calls/large?wait=60s" }, "application/json")
}

// largeEvents fills a conversation with events that are many times as large when they are escaped.
func (f *flooder) largeEvents(ctx context.Context) {
	text := strings.Repeat("<", 500_000)
	for i := range more(200) {
		f.must(ctx, http.MethodPost, "/v1/conversations/large/events",
			schemas.AppendedEvent{ID: fmt.Sprint("e-", i), Type: schemas.Message, Data: fmt.Appendf(nil, `{"text":%q}`, text)}, "")
	}
}

func (f *flooder) pages(ctx context.Context) {
	many(ctx, 32, func(i int) {
		f.ask(ctx, http.MethodGet, []string{"/v1/conversations/large/events?limit=1000", "/v1/conversations/large/events?compact=true"}[i%2], nil)
	})
}

func (f *flooder) untakenPages(ctx context.Context) {
	f.untaken(ctx, more(2000), func(int) string { return "/v1/conversations/large/events?limit=1000" }, "application/json")
}

func (f *flooder) untakenStreams(ctx context.Context) {
	cursors := []string{""}
	for range more(200) {
		_, answer := f.ask(ctx, http.MethodGet, "/v1/conversations/large/events?limit=1&after="+url.QueryEscape(cursors[len(cursors)-1]), nil)
		var page struct {
			Events []struct{ Cursor string }
			Cursor string
		}
		if json.Unmarshal(answer, &page) != nil || page.Cursor == "" {
			break
		}
		cursors = append(cursors, page.Cursor)
	}
	f.untaken(ctx, more(2000), func(i int) string {
		return "/v1/conversations/large/events?after=" + url.QueryEscape(cursors[i%len(cursors)])
	}, "text/event-stream")
}

// largeRecord is a sandbox of about 0.4 MB.
func largeRecord(name string) map[string]any {
	hooks := make([]string, schemas.MaxHooks)
	for i := range hooks {
		hooks[i] = "# " + strings.Repeat("<", 12<<10)
	}
	return map[string]any{"name": name, "config": map[string]any{"provider": "local", "persistent": true, "onCreate": hooks}}
}

func (f *flooder) largeRecords(ctx context.Context) {
	many(ctx, 16, func(i int) {
		status, answer := f.ask(ctx, http.MethodPost, "/v1/accounts/me/sandboxes", largeRecord(fmt.Sprint("s", i)))
		var made struct{ ID string }
		if status < http.StatusBadRequest && json.Unmarshal(answer, &made) == nil {
			f.ask(ctx, http.MethodDelete, "/v1/accounts/me/sandboxes/"+made.ID, nil)
		}
	})
}

func (f *flooder) keptRecords(ctx context.Context) {
	many(ctx, 16, func(i int) {
		f.ask(ctx, http.MethodPost, "/v1/accounts/me/sandboxes", largeRecord(fmt.Sprint("s", i)))
		f.ask(ctx, http.MethodGet, "/v1/accounts/me/sandboxes", nil)
		f.ask(ctx, http.MethodGet, "/v1/accounts/me/manifest", nil)
	})
}

func (f *flooder) endpoints(ctx context.Context) {
	for i := range 100 {
		f.must(ctx, http.MethodPost, "/v1/webhooks", map[string]any{"url": fmt.Sprintf("http://127.0.0.1:9/%d", i)}, "")
	}
}

func (f *flooder) fanOut(ctx context.Context) {
	text := strings.Repeat("x", more(100_000))
	many(ctx, 8, func(i int) {
		f.ask(ctx, http.MethodPost, "/v1/conversations/fan/events",
			schemas.AppendedEvent{ID: fmt.Sprint("fan-", i), Type: schemas.Message, Data: fmt.Appendf(nil, `{"text":%q}`, text)})
	})
}

func (f *flooder) delivered(ctx context.Context) {
	f.endpoints(ctx)
	for i := range 10 {
		f.ask(ctx, http.MethodPost, "/v1/conversations/fan/events",
			schemas.AppendedEvent{ID: fmt.Sprint("fan-", i), Type: schemas.Message, Data: fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", 100_000))})
	}
}

func (f *flooder) replays(ctx context.Context) {
	many(ctx, 16, func(int) { f.ask(ctx, http.MethodPost, "/v1/webhooks/replay", map[string]any{"since": "1h"}) })
}

func (f *flooder) otherURLs(ctx context.Context) {
	_, answer := f.ask(ctx, http.MethodGet, "/v1/webhooks", nil)
	var list struct{ Webhooks []struct{ ID string } }
	if json.Unmarshal(answer, &list) != nil || len(list.Webhooks) == 0 {
		f.t.Errorf("endpoints: %.300s", answer)
		return
	}
	many(ctx, 16, func(i int) {
		id := list.Webhooks[i%len(list.Webhooks)].ID
		f.ask(ctx, http.MethodPatch, "/v1/webhooks/"+id, map[string]any{"url": fmt.Sprintf("http://127.0.0.1:9/%d/%s", i, strings.Repeat("u", 1500))})
		f.ask(ctx, http.MethodPost, "/v1/webhooks/"+id+"/test", map[string]any{})
	})
}

// largeResults has calls with large results.
func (f *flooder) largeResults(ctx context.Context) {
	for range more(30) {
		if _, err := f.run(ctx, schemas.ToolBash, schemas.BashInput{Command: "head -c 250000 /dev/zero | tr '\\0' '\\001'"}); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *flooder) untakenResults(ctx context.Context) {
	n := int(f.made.Load())
	f.untaken(ctx, more(2000), func(i int) string { return fmt.Sprint("/v1/calls/loud-", i%n+1) }, "application/json")
}

func (f *flooder) callLists(ctx context.Context) {
	many(ctx, 64, func(i int) {
		f.ask(ctx, http.MethodGet, []string{"/v1/calls?limit=100", "/v1/conversations?limit=100"}[i%2], nil)
	})
}

// printingJob starts a background job that has printed much and continues.
func (f *flooder) printingJob(ctx context.Context) {
	r, err := f.run(ctx, schemas.ToolBash, schemas.BashInput{Background: true,
		Command: "head -c 5000000 /dev/zero | tr '\\0' '<'; while :; do echo more; sleep 0.1; done"})
	if err != nil || r.StatusID == "" {
		f.t.Fatalf("no job: %+v, %v", r, err)
	}
	f.job = r.StatusID
}

func (f *flooder) untakenLogs(ctx context.Context) {
	f.untaken(ctx, more(2000), func(i int) string {
		return "/v1/jobs/" + f.job + "/logs?offset=0" + []string{"", "&follow=1"}[i%2]
	}, "application/json")
}

func (f *flooder) jobQuestions(ctx context.Context) {
	many(ctx, 256, func(i int) {
		if i%2 == 0 {
			f.ask(ctx, http.MethodGet, "/v1/jobs/"+f.job+"/logs?offset=0", nil)
		} else {
			f.ask(ctx, http.MethodPost, "/v1/jobs/"+f.job+"/signal", map[string]any{"signal": "CONT"})
		}
	})
}

func (f *flooder) longCommands(ctx context.Context) {
	f.bash(ctx, 64, "sleep 1 # "+strings.Repeat("<", 60_000), true)
}

func (f *flooder) manyJobs(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	f.bash(within, 32, "true", true)
}

func (f *flooder) emptyLists(ctx context.Context) {
	many(ctx, 128, func(i int) {
		f.ask(ctx, http.MethodGet, []string{"/v1/jobs?state=running&limit=500", "/v1/approvals?limit=500", "/v1/calls?conversation=none"}[i%3], nil)
	})
}

func (f *flooder) largestInputs(ctx context.Context) {
	content := strings.Repeat("<", 5_000_000)
	many(ctx, 8, func(int) {
		begun, over := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // each may take seconds beside the others
		defer over()
		f.call(begun, schemas.ToolWrite, schemas.WriteInput{FilePath: "large", Content: content})
	})
}

func (f *flooder) unreadableInputs(ctx context.Context) {
	content := strings.Repeat("\x01", 64_000)
	many(ctx, 16, func(i int) {
		f.callWith(ctx, schemas.ToolWrite, schemas.WriteInput{FilePath: "x", Content: content}, "asks", 0)
		if i%4 == 0 {
			f.ask(ctx, http.MethodGet, "/v1/approvals?limit=500", nil)
		}
	})
}

// manyAgents has a manifest make as many records as the quota of bytes allows, about.
func (f *flooder) manyAgents(ctx context.Context) {
	f.manifest(ctx, more(500), false)
}

func (f *flooder) manifest(ctx context.Context, agents int, dry bool) (status int) {
	resources := []map[string]any{{"kind": "sandbox", "name": "m-sandbox", "config": map[string]any{"permissionMode": "bypass"}}}
	for i := range agents {
		resources = append(resources, map[string]any{"kind": "agent", "name": fmt.Sprint("m-agent-", i),
			"config": map[string]any{"sandbox": "m-sandbox"}})
	}
	status, _ = f.ask(ctx, http.MethodPut, "/v1/accounts/me/manifest", map[string]any{"dryRun": dry,
		"manifest": map[string]any{"version": 1, "project": "m", "resources": resources}})
	return status
}

func (f *flooder) manifests(ctx context.Context) {
	many(ctx, 16, func(int) { f.manifest(ctx, 1, true) })
}

func (f *flooder) durableArrays(ctx context.Context) {
	array := json.RawMessage("[1" + strings.Repeat(",1", 500_000) + "]")
	f.ask(ctx, http.MethodPut, "/v1/streams/arrays", json.RawMessage("[]"))
	many(ctx, 32, func(int) { f.ask(ctx, http.MethodPost, "/v1/streams/arrays", array) })
}

func (f *flooder) durableMessages(ctx context.Context) {
	small := json.RawMessage("[1" + strings.Repeat(",1", 1000) + "]")
	f.ask(ctx, http.MethodPut, "/v1/streams/small", json.RawMessage("[]"))
	for range more(100) {
		f.ask(ctx, http.MethodPost, "/v1/streams/small", small)
	}
}

func (f *flooder) durablePages(ctx context.Context) {
	many(ctx, 64, func(int) { f.ask(ctx, http.MethodGet, "/v1/streams/small?offset=-1", nil) })
}

func (f *flooder) members(ctx context.Context) {
	body := json.RawMessage(`{"tool":"bash","input":{"command":"true"` + manyMembers(99_000) + `}}`)
	many(ctx, 16, func(int) { f.ask(ctx, http.MethodPost, "/v1/calls", body) })
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":1`, i)
	}
	return b.String()
}

func (f *flooder) silentHTTP2(ctx context.Context) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	f.hold(ctx, f.gateway, more(5000), func(int) string { return preface })
}

func (f *flooder) silentNATS(ctx context.Context) {
	u, err := url.Parse(f.credential(f.t).URL)
	if err != nil {
		f.t.Error(err)
		return
	}
	f.hold(ctx, u.Host, more(5000), func(int) string { return "PI" })
}

func (f *flooder) keyless(ctx context.Context) {
	key := f.key
	defer func() { f.key = key }()
	f.key = "sk_none"
	many(ctx, 256, func(i int) {
		switch i % 3 {
		case 0:
			f.ask(ctx, http.MethodGet, "/readyz", nil)
		case 1:
			f.ask(ctx, http.MethodGet, "/metrics", nil)
		default:
			f.ask(ctx, http.MethodPost, "/v1/jobs/job_0123456789abcdefghjkmnpqrs/complete", map[string]any{})
		}
	})
}

func (f *flooder) outputs(ctx context.Context) {
	f.bash(ctx, 16, "head -c 70000000 /dev/zero | tr '\\0' x", true)
}

func (f *flooder) unnamedFiles(ctx context.Context) {
	f.bash(ctx, 8, "exec 3>f$$; rm f$$; head -c 1000000000 /dev/zero >&3; sleep 5", false)
}
