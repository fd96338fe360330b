package clustertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestTheSameCallTwiceAtOnce publishes each call by two processes at once. The one that is refused must find the call.
//
//guarantee:what-was-confirmed-is-found-at-every-server-of-a-cluster
func TestTheSameCallTwiceAtOnce(t *testing.T) {
	longtest.Only(t, "writes that meet one in process on three servers")
	c := natstest.StartCluster(t, natstest.ClusterOptions{SyncAlways: true, Streams: streams.Options{Shards: 1}})
	buses := []*streams.Bus{c.Open(0), c.Open(1)}
	const pairs = 500
	lost := 0
	for n := range pairs {
		call := newCall(schemas.CallID(fmt.Sprintf("call_twice_%d", n)), []byte(`{"command":"true"}`))
		var (
			both sync.WaitGroup
			errs [2]error
		)
		for i, b := range buses {
			both.Go(func() {
				errs[i] = streams.Calls.Publish(t.Context(), b, call)
				if errors.Is(errs[i], schemas.ErrConflict) {
					_, errs[i] = b.Calls().Find(t.Context(), call.Account, call.ID)
				}
			})
		}
		both.Wait()
		if err := errors.Join(errs[0], errs[1]); err != nil {
			lost++
			t.Logf("pair %d: %v", n, err)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d pairs have one that was refused and does not find the call", lost, pairs)
	}
}

// book is the records of a gateway in tests: one account, for which every call is valid.
type book struct{}

var _ gateway.Records = book{}

func (book) Authenticate(context.Context, string) (schemas.AccountID, error) { return account, nil }

func (book) Resolve(_ context.Context, _ schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	c := newCall(r.ID, r.Input)
	c.Conversation, c.Origin, c.Digest = r.Conversation, r.Origin, r.Digest()
	return c, nil
}

// TestTheSameRequestTwiceAtOnce posts each call to two gateways at the same time, which are connected to different servers of the log.
// Both must accept it.
func TestTheSameRequestTwiceAtOnce(t *testing.T) {
	longtest.Only(t, "writes that meet one in process on three servers")
	c := natstest.StartCluster(t, natstest.ClusterOptions{SyncAlways: true, Streams: streams.Options{Shards: 1}})
	var urls [2]string
	for i := range urls {
		g := gateway.New(gateway.Options{Bus: c.Open(i), Records: book{}})
		srv := httptest.NewServer(g)
		t.Cleanup(func() {
			g.Drain()
			srv.Close()
		})
		urls[i] = srv.URL
	}
	post := func(url, body string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/calls", strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer sk_test")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		said, err := io.ReadAll(a.Body)
		if err == nil && a.StatusCode != http.StatusAccepted {
			err = fmt.Errorf("%d %s", a.StatusCode, said)
		}
		return err
	}
	const pairs = 500
	lost := 0
	for n := range pairs {
		body := fmt.Sprintf(`{"id":"call_%d","conversation":"c_%d","tool":"bash","input":{"command":"true"}}`, n, n)
		var (
			both sync.WaitGroup
			errs [2]error
		)
		for i, url := range urls {
			both.Go(func() { errs[i] = post(url, body) })
		}
		both.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			lost++
			t.Logf("pair %d: %v", n, err)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d pairs have one that was not taken", lost, pairs)
	}
}
