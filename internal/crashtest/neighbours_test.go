package crashtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

// A quiet tenant's calls may take so much longer beside a flood: a multiple of what they take without, or a time that
// is enough on a machine that has much else to do.
const (
	slowerBy      = 3
	alwaysMiddle  = 2 * time.Second
	alwaysSlowest = 15 * time.Second
)

// floodSize is how long each part of TestAQuietTenantIsServedBesideEachFlood takes.
type floodSize struct {
	lasts time.Duration
	calls int // of the quiet tenant, at least, beside each flood and before them
	all   bool
}

func floodSizeOf(t *testing.T) floodSize {
	t.Helper()
	if sizeOf().kills > 1 {
		return floodSize{lasts: 6 * time.Second, calls: 30, all: true}
	}
	return floodSize{lasts: 2 * time.Second, calls: 10}
}

// TestAQuietTenantIsServedBesideEachFlood: one tenant floods the installation in every way that we know of, one after the other, with real
// processes on loopback. Each call that another tenant makes meanwhile is taken at once, has its result, and takes not much
// longer than without.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAQuietTenantIsServedBesideEachFlood(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "each flood against all processes; each queue on its own has its test beside it")
	s, size := sizeOf(), floodSizeOf(t)
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()
	c := startCluster(ctx, t, withTenants)
	q := newQuiet(ctx, t, c.tenant(ctx, t, "quiet"))
	undisturbed := q.whileRuns(ctx, t, size.calls, func() {})
	t.Logf("undisturbed: %s", spread(undisturbed))
	for _, one := range floods() {
		if size.all || one.short {
			t.Run(one.name, func(t *testing.T) { c.flooded(ctx, t, one, q, undisturbed) })
		}
	}
}

// flooded runs one flood by a new tenant while the quiet tenant makes its calls, and fails if these take much longer than undisturbed
// ones. The tenant is a new one so that what an earlier flood has left in queues does not hinder this one.
func (c *cluster) flooded(ctx context.Context, t *testing.T, one flood, q *quiet, undisturbed []time.Duration) {
	t.Helper()
	size := floodSizeOf(t)
	f := newFlooder(t, c.tenant(ctx, t, "loud"), q)
	if one.needs != "" {
		if r, err := f.run(ctx, schemas.ToolBash, schemas.BashInput{Command: one.needs}); err != nil || r.Status != schemas.StatusCompleted {
			t.Fatalf("what the flood needs is not made: %+v %v", r, err)
		}
	}
	c.log.note("--- flood: " + one.name)
	f.sent.Store(0)
	f.taken.Store(0)
	took := q.whileRuns(ctx, t, size.calls, func() {
		flooding, stop := context.WithTimeout(ctx, size.lasts)
		defer stop()
		one.do(f, flooding)
	})
	t.Logf("%d sent, %d taken; the quiet tenant: %s", f.sent.Load(), f.taken.Load(), spread(took))
	if f.sent.Load() == 0 || f.taken.Load() == 0 && !one.refused {
		t.Error("nothing of the flood has come in")
	}
	servedAsWell(t, took, undisturbed)
	for _, p := range c.roles {
		if !p.alive() {
			t.Fatalf("%s has ended", p.name)
		}
	}
}

// withTenants allows accounts to be created and sets the limits for each that the guide to tenancy recommends. The gateway gets few file
// descriptors, so that a flood of connections needs only a few to reach the limit.
func withTenants(c *cluster, worker []string) []string {
	c.gatewayFlags = append(c.gatewayFlags, "--admin-key", adminKey, "--durable-streams", "--account-durable-bytes", "32MiB")
	c.descriptors = 1024
	return append(worker, "--account-cap", "4", "--leftover-cpu", "5s")
}

const adminKey = "admin-key-0123456789"

// tenant creates an account and returns a copy of the cluster whose requests are made with the key of that account.
func (c *cluster) tenant(ctx context.Context, t *testing.T, name string) *cluster {
	t.Helper()
	account, key, err := client.New("http://"+c.gateway, adminKey).Accounts().Add(ctx, schemas.AccountSpec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	own := *c
	own.account, own.key = string(account.ID), key
	return &own
}

// dial connects to the NATS server with the credential of the account. It tries again until the server has received the credential.
func (c *cluster) dial(t *testing.T) *nats.Conn {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		conn, err := nats.Connect(c.credential(t).URL, nats.UserInfo(c.account, c.key), nats.MaxReconnects(-1),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // what is refused is part of a flood
		if err == nil {
			t.Cleanup(conn.Close)
			return conn
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		pause(t.Context(), 100*time.Millisecond)
	}
}

// quiet is a tenant that makes one call after the other and waits for each.
type quiet struct {
	*cluster
	nats *nats.Conn
	next int
}

func newQuiet(ctx context.Context, t *testing.T, c *cluster) *quiet {
	t.Helper()
	q := &quiet{cluster: c, nats: c.dial(t)}
	if _, err := q.call(ctx); err != nil { // its box is made
		t.Fatal(err)
	}
	return q
}

// whileRuns makes calls until f has returned, and at least n. It returns how long each took.
func (q *quiet) whileRuns(ctx context.Context, t *testing.T, n int, f func()) []time.Duration {
	t.Helper()
	over := make(chan struct{})
	var flood sync.WaitGroup
	flood.Go(func() { defer close(over); f() })
	defer flood.Wait()
	var took []time.Duration
	for on := true; on || len(took) < n; {
		select {
		case <-over:
			on = false
		default:
		}
		d, err := q.call(ctx)
		if err != nil {
			t.Errorf("a call of the quiet tenant: %v", err)
			if ctx.Err() != nil {
				t.FailNow()
			}
		}
		if took = append(took, d); d > time.Second {
			t.Logf("quiet-%d took %s", q.next, d.Round(time.Millisecond))
		}
		pause(ctx, 50*time.Millisecond)
	}
	return took
}

// call makes one call by one of the ways in, and reports how long it took until its result was there.
func (q *quiet) call(ctx context.Context) (time.Duration, error) {
	q.next++
	id := fmt.Sprint("quiet-", q.next)
	tool, input, want := schemas.ToolBash, any(schemas.BashInput{Command: "echo " + id}), id+"\n"
	if q.next%3 == 0 {
		tool, input, want = schemas.ToolWrite, schemas.WriteInput{FilePath: "note", Content: id}, ""
	}
	began := time.Now()
	var err error
	if r := request(id, tool, input); q.next%2 == 0 {
		err = q.publish(ctx, r)
	} else {
		err = q.send(ctx, r)
	}
	if err != nil {
		return time.Since(began), fmt.Errorf("%s is not taken after %s: %w", id, time.Since(began), err)
	}
	r, err := q.await(ctx, id)
	switch {
	case err != nil:
		return time.Since(began), err
	case r.Status != schemas.StatusCompleted || want != "" && (r.Output == nil || r.Output.Stdout != want):
		return time.Since(began), fmt.Errorf("%s is %s: %s: %w", id, r.Status, r.Text, errors.ErrUnsupported)
	}
	return time.Since(began), nil
}

// request returns the request of a call in a new conversation.
func request(id string, tool schemas.Tool, input any) schemas.Request {
	return schemas.Request{ID: schemas.CallID(id), Conversation: schemas.ConversationID("c-" + id), Tool: tool, Input: encode(input)}
}

// encode returns JSON without the escapes for HTML, which would make it longer.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// send posts a call once and does not repeat a request that fails: the quiet tenant must be served at once.
func (q *quiet) send(ctx context.Context, r schemas.Request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	status, answer, err := q.askOnce(ctx, http.MethodPost, "/v1/calls", body)
	if err == nil && status != http.StatusAccepted && status != http.StatusOK {
		err = fmt.Errorf("%d %.200s: %w", status, answer, errors.ErrUnsupported)
	}
	return err
}

// publish puts a call on the log with a message id that another tenant can guess.
func (q *quiet) publish(ctx context.Context, r schemas.Request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	m := nats.NewMsg("sandjet.calls.auto." + q.account)
	m.Header.Set(nats.MsgIdHdr, messageID(q.next))
	m.Data = body
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer, err := q.nats.RequestMsgWithContext(ctx, m)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	var ack struct {
		Stream    string
		Duplicate bool
		Error     any
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Stream == "" || ack.Duplicate || ack.Error != nil {
		return fmt.Errorf("publish: %s: %w", answer.Data, errors.Join(errors.ErrUnsupported, err))
	}
	return nil
}

func messageID(n int) string { return fmt.Sprint("invoice-", n) }

// await waits for the result of a call. A call that was published over NATS may be unknown to the gateway at first.
func (q *quiet) await(ctx context.Context, id string) (r schemas.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		status, answer, err := q.askOnce(ctx, http.MethodGet, "/v1/calls/"+id+"?wait=10s", nil)
		switch {
		case err == nil && status == http.StatusOK:
			if err := json.Unmarshal(answer, &r); err != nil {
				return r, fmt.Errorf("%s: %w", id, err)
			}
			return r, nil
		case err != nil || status != http.StatusAccepted && status != http.StatusNotFound:
			return r, fmt.Errorf("%s has no result: %d %.200s: %w", id, status, answer, errors.Join(errors.ErrUnsupported, err))
		}
		if pause(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return r, fmt.Errorf("%s has no result (last: %d): %w", id, status, ctx.Err())
		}
	}
}

// middle returns the median.
func middle(took []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(took))[len(took)/2]
}

// servedAsWell fails if the median or the maximum of the calls' times beside a flood is much larger than without.
func servedAsWell(t *testing.T, took, undisturbed []time.Duration) {
	t.Helper()
	if got, most := middle(took), max(slowerBy*middle(undisturbed), alwaysMiddle); got > most {
		t.Errorf("half of the calls of the quiet tenant took %s, want at most %s", got, most)
	}
	if got, most := slices.Max(took), max(slowerBy*slices.Max(undisturbed), alwaysSlowest); got > most {
		t.Errorf("a call of the quiet tenant took %s, want at most %s", got, most)
	}
}

// longest returns the 99th percentile.
func longest(took []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(took))[(len(took)*99-1)/100]
}

// spread returns the number of calls, the median, the 99th percentile and the maximum as text.
func spread(took []time.Duration) string {
	const exact = time.Millisecond
	return fmt.Sprintf("%d calls, middle %s, p99 %s, slowest %s", len(took), middle(took).Round(exact), longest(took).Round(exact),
		slices.Max(took).Round(exact))
}
