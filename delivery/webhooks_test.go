package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/webhook"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const within = 2 * time.Minute // timeout for events that must happen

// book is the endpoints of a test.
type book struct {
	mu  sync.Mutex
	all map[schemas.EndpointID]schemas.Endpoint
}

func (k *book) Get(_ context.Context, _ schemas.AccountID, id schemas.EndpointID) (schemas.Endpoint, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[id], nil
}

func (k *book) Disable(_ context.Context, _ schemas.AccountID, id schemas.EndpointID, reason string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.all[id]
	e.Disabled, e.Reason = true, reason
	k.all[id] = e
	return nil
}

func (k *book) Failing(context.Context, schemas.AccountID, schemas.EndpointID, bool, time.Time) error {
	return nil
}

// post is one request that a receiver saw.
type post struct {
	id, body, timestamp string
	at                  time.Time
	valid               error // result of the public library's verification
}

// receiver is an endpoint with a server. It responds to the nth request, counted from 0, as configured.
type receiver struct {
	id    schemas.EndpointID
	mu    sync.Mutex
	posts []post
}

func newReceiver(t *testing.T, k *book, id schemas.EndpointID, answer func(n int, w http.ResponseWriter)) *receiver {
	t.Helper()
	secret := webhook.NewSecret()
	library, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{id: id}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		h := q.Header
		p := post{h.Get("webhook-id"), string(body), h.Get("webhook-timestamp"), time.Now(), library.Verify(body, h)}
		r.mu.Lock()
		n := len(r.posts)
		r.posts = append(r.posts, p)
		r.mu.Unlock()
		answer(n, w)
	}))
	t.Cleanup(server.Close)
	k.all[id] = schemas.Endpoint{ID: id, Account: "acct_1", URL: server.URL, Secrets: []schemas.EndpointSecret{{Key: secret}}}
	return r
}

func (r *receiver) seen() []post {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.posts)
}

// await waits until the receiver has seen n requests.
func (r *receiver) await(t *testing.T, n int) []post {
	t.Helper()
	await(t, fmt.Sprintf("%d requests at %s", n, r.id), func() bool { return len(r.seen()) >= n })
	return r.seen()
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there are no %s", what)
		}
	}
}

// deliver runs a deliverer of webhooks until the returned function is called.
func deliver(t *testing.T, b *streams.Bus, k *book, change func(*delivery.Deliverer, *webhook.Sender)) (stop func()) {
	t.Helper()
	sender := &webhook.Sender{Endpoints: k, Policy: webhook.Policy{AllowLoopback: true, AllowHTTP: true}}
	d := &delivery.Deliverer{Bus: b, Sender: sender}
	d.SetSchedule(0, 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond)
	if change != nil {
		change(d, sender)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the deliverer ended with %v", err)
		}
		sender.Close()
	})
	t.Cleanup(stop)
	return stop
}

func send(t *testing.T, b *streams.Bus, id string, to schemas.EndpointID) {
	t.Helper()
	d := schemas.Delivery{
		ID: schemas.DeliveryID(id), Account: "acct_1", Channel: schemas.WebhookChannel, Endpoint: to, Event: "e", Type: schemas.JobFinished,
		Body: `{"type":"job.finished","data":{"n":"` + id + `"}}`, Created: time.Now(),
	}
	if err := streams.Deliveries.Publish(t.Context(), b, d); err != nil {
		t.Fatal(err)
	}
}

func status(codes ...int) func(int, http.ResponseWriter) {
	return func(n int, w http.ResponseWriter) { w.WriteHeader(codes[min(n, len(codes)-1)]) }
}

func TestARetryIsTheSameDeliverySignedAnew(t *testing.T) {
	t.Parallel()
	l, k := natstest.Start(t), &book{all: map[schemas.EndpointID]schemas.Endpoint{}}
	r := newReceiver(t, k, "wh_1", status(500, 500, 200))
	deliver(t, l.Bus, k, func(d *delivery.Deliverer, _ *webhook.Sender) {
		d.SetSchedule(0, 1500*time.Millisecond, 1500*time.Millisecond)
	})
	send(t, l.Bus, "msg_1", "wh_1")
	posts := r.await(t, 3)
	for i, p := range posts {
		if p.id != "msg_1" || p.body != posts[0].body || p.valid != nil {
			t.Errorf("try %d: %+v", i, p)
		}
		if i > 0 && (p.timestamp <= posts[i-1].timestamp || p.at.Sub(posts[i-1].at) < 1300*time.Millisecond) {
			t.Errorf("try %d was signed at %s and came at %s, the one before %s and %s", i, p.timestamp, p.at, posts[i-1].timestamp, posts[i-1].at)
		}
	}
}

func TestAReceiverSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	l, k := natstest.Start(t), &book{all: map[schemas.EndpointID]schemas.Endpoint{}}
	r := newReceiver(t, k, "wh_1", func(n int, w http.ResponseWriter) {
		if n == 0 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	deliver(t, l.Bus, k, nil)
	send(t, l.Bus, "msg_1", "wh_1")
	posts := r.await(t, 2)
	if wait := posts[1].at.Sub(posts[0].at); wait < 1900*time.Millisecond {
		t.Errorf("it came again after %s, though the receiver asked for 2 s", wait)
	}
}

func TestAReceiverThatIsGoneIsDisabled(t *testing.T) {
	t.Parallel()
	l, k := natstest.Start(t), &book{all: map[schemas.EndpointID]schemas.Endpoint{}}
	gone, well := newReceiver(t, k, "wh_1", status(410)), newReceiver(t, k, "wh_2", status(200))
	deliver(t, l.Bus, k, nil)
	send(t, l.Bus, "msg_1", "wh_1")
	await(t, "endpoints that are disabled", func() bool {
		e, err := k.Get(t.Context(), "acct_1", "wh_1")
		return err == nil && e.Disabled && e.Reason != ""
	})
	send(t, l.Bus, "msg_2", "wh_1")
	send(t, l.Bus, "msg_3", "wh_2")
	well.await(t, 1)
	if n := len(gone.seen()); n != 1 {
		t.Errorf("the receiver that is gone got %d requests, want 1", n)
	}
	await(t, "a dead letter of what waited", func() bool {
		letters, err := streams.OpenDeadLetters(l.Bus).List(t.Context(), "", 0)
		if len(letters) > 1 {
			t.Fatalf("dead letters %v: nobody wants what was answered by 410", letters)
		}
		if err != nil || len(letters) == 0 {
			return false
		}
		letter, err := streams.OpenDeadLetters(l.Bus).Show(t.Context(), letters[0].ID)
		return err == nil && strings.Contains(string(letter.Payload), "msg_2") && strings.Contains(letter.Reason, "disabled")
	})
}

func TestADelivererThatEndsBeforeTheAnswerDeliversAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	l, k := natstest.Start(t), &book{all: map[schemas.EndpointID]schemas.Endpoint{}}
	came, answer := make(chan struct{}), make(chan struct{})
	r := newReceiver(t, k, "wh_1", func(n int, _ http.ResponseWriter) {
		if n == 0 {
			close(came)
			<-answer
		}
	})
	stop := deliver(t, l.Bus, k, func(d *delivery.Deliverer, _ *webhook.Sender) { d.Grace = time.Nanosecond })
	send(t, l.Bus, "msg_1", "wh_1")
	<-came
	stop()
	close(answer) // the receiver has it, and the sender gets no response
	deliver(t, l.Bus, k, nil)
	posts := r.await(t, 2)
	if posts[0].id != posts[1].id || posts[0].body != posts[1].body || posts[1].valid != nil {
		t.Errorf("got %+v, want the same twice", posts)
	}
}

func TestAReplayIsTheSameDelivery(t *testing.T) {
	t.Parallel()
	l, k := natstest.Start(t), &book{all: map[schemas.EndpointID]schemas.Endpoint{}}
	r := newReceiver(t, k, "wh_1", status(200))
	deliver(t, l.Bus, k, nil)
	send(t, l.Bus, "msg_1", "wh_1")
	send(t, l.Bus, "msg_2", "wh_1")
	before := r.await(t, 2)
	n, _, err := lifecycle.ReplayDeliveries(t.Context(), l.Bus, lifecycle.DeliveryReplay{Account: "acct_1", ID: "msg_1"})
	if n != 1 || err != nil {
		t.Fatal(n, err)
	}
	again := r.await(t, 3)[2]
	first := before[slices.IndexFunc(before, func(p post) bool { return p.id == "msg_1" })]
	if again.id != first.id || again.body != first.body || again.valid != nil {
		t.Errorf("got %+v, want what came before: %+v", again, first)
	}
}

func TestAllArrivesThroughErrorsAndRestarts(t *testing.T) {
	t.Parallel()
	l, k := natstest.Start(t), &book{all: map[schemas.EndpointID]schemas.Endpoint{}}
	const many = 60 // deliveries to each
	var all []*receiver
	for i := range 3 {
		all = append(all, newReceiver(t, k, schemas.EndpointID(fmt.Sprintf("wh_%d", i)), func(n int, w http.ResponseWriter) {
			if n%20 == 7 {
				w.WriteHeader(http.StatusBadGateway)
			}
		}))
	}
	stop := func() {}
	for i := range many {
		if i%(many/3) == 0 {
			stop()
			stop = deliver(t, l.Bus, k, nil)
		}
		for _, r := range all {
			send(t, l.Bus, fmt.Sprintf("msg_%s_%d", r.id, i), r.id)
		}
	}
	for _, r := range all {
		await(t, "deliveries left out at "+string(r.id), func() bool {
			ids := map[string]bool{}
			for n, p := range r.seen() {
				if n%20 != 7 && p.valid == nil {
					ids[p.id] = true
				}
			}
			return len(ids) == many
		})
	}
	stop()
}

func TestReceiversThatNeverAnswerDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	l, k := natstest.Start(t), &book{all: map[schemas.EndpointID]schemas.Endpoint{}}
	const holes, many = 50, 40
	for i := range holes {
		id := schemas.EndpointID(fmt.Sprintf("wh_hole%d", i))
		k.all[id] = schemas.Endpoint{ID: id, Account: "acct_1", URL: "http://" + blackHole(t),
			Secrets: []schemas.EndpointSecret{{Key: webhook.NewSecret()}}}
		for n := range 6 {
			send(t, l.Bus, fmt.Sprintf("msg_%s_%d", id, n), id)
		}
	}
	well := newReceiver(t, k, "wh_well", status(200))
	deliver(t, l.Bus, k, func(d *delivery.Deliverer, s *webhook.Sender) { d.Grace, s.Timeout = time.Nanosecond, 10*within })
	for n := range many {
		send(t, l.Bus, fmt.Sprintf("msg_well_%d", n), "wh_well")
	}
	well.await(t, many)
}

// blackHole accepts connections and never responds.
func blackHole(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
		}
	}()
	return listener.Addr().String()
}
