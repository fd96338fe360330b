package replaytest_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/replaytest"
	"github.com/sandjet/sandjet/internal/streamcheck"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// pipes is a network in memory, which pauses with virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
	opened atomic.Int64
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.close(); return nil }

func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.opened.Add(1)
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, io.ErrClosedPipe
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// oneKey signs attach tokens.
type oneKey struct{}

func (oneKey) Sign(purpose string, message []byte) (string, []byte, error) {
	h := hmac.New(sha256.New, []byte(purpose))
	h.Write(message)
	return "1", h.Sum(nil), nil
}

func (k oneKey) Verify(_, purpose string, message, signature []byte) bool {
	_, want, err := k.Sign(purpose, message)
	return err == nil && hmac.Equal(want, signature)
}

func (oneKey) KeyHashes(schemas.AccountID) []string {
	sum := sha256.Sum256([]byte(aliceKey))
	return []string{hex.EncodeToString(sum[:])}
}

// TestTimeLeaps: sockets and event streams live through half a day of silence on one connection each, with
// a key or with tokens that are renewed in band, while retention removes what grows old.
func TestTimeLeaps(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const kept = 2 * time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		run := func(part func(context.Context) error) {
			parts.Go(func() {
				if err := part(ctx); err != nil {
					t.Errorf("a part ended with %v", err)
				}
			})
		}
		network := newPipes()
		gw := gateway.New(gateway.Options{Bus: b, Records: book{}, Keys: oneKey{}})
		run(func(ctx context.Context) error { return gw.Run(ctx, network) })
		run((&streams.Retention{Bus: b, Keep: kept}).Run)
		var clients sync.WaitGroup
		leave, end := context.WithCancel(t.Context())
		c := client.New("http://gateway.test", aliceKey)
		c.HTTP = &http.Client{Transport: &http.Transport{DialContext: network.dial, DisableKeepAlives: true}}
		socket := func(token func(context.Context) (string, error)) *client.Socket {
			s := c.Socket()
			s.Token, s.Dialer = token, &websocket.Dialer{NetDialContext: network.dial}
			clients.Go(func() {
				if err := s.Run(leave); err != nil {
					t.Errorf("a socket ended: %v", err)
				}
			})
			return s
		}
		renewed := 0
		token := func(ctx context.Context) (string, error) {
			renewed++
			made, err := c.AddAttachToken(ctx, client.AttachTokenSpec{Conversations: []string{"c_*"}})
			return made.Token, err
		}
		var all []*replaytest.Transcript
		for way, follow := range map[string]replaytest.Follow{
			"by key": socket(nil).Follow, "by token": socket(token).Follow, "by event stream": c.Events,
		} {
			tr := replaytest.NewTranscript("c_1", way)
			all = append(all, tr)
			clients.Go(func() {
				if err := tr.Write(leave, follow); err != nil {
					t.Error(err)
				}
			})
		}
		var ever []streamcheck.Seen
		store := func(n int) schemas.Cursor {
			e := note("c_1", n)
			at, err := streams.Events.Store(t.Context(), b, e)
			if err != nil {
				t.Fatal(err)
			}
			digest, err := replaytest.Digest(e)
			if err != nil {
				t.Fatal(err)
			}
			ever = append(ever, streamcheck.Seen{Conversation: "c_1", Cursor: at.Cursor.String(), Digest: digest})
			return at.Cursor
		}
		first := store(0)
		synctest.Wait()
		for n, leap := range []time.Duration{time.Second, time.Minute, 20 * time.Minute, 3 * time.Hour,
			time.Duration(pick(13, 3)) * time.Hour, time.Second} {
			time.Sleep(leap)
			store(n + 1)
			synctest.Wait()
			for _, tr := range all {
				if tr.Count() != n+2 {
					t.Errorf("%s after %s: %d events, want %d", tr.Way, leap, tr.Count(), n+2)
				}
			}
		}
		if want := int64(len(all) + renewed); network.opened.Load() != want { // and one for each token
			t.Errorf("%d connections, want %d: somebody came back", network.opened.Load(), want)
		}
		if renewed < 20 {
			t.Errorf("%d tokens in hours", renewed)
		}
		page, err := streams.Page(t.Context(), b, alice, "c_1", first, 0)
		if err != nil || page.Recovered || len(page.Events) != 2 {
			t.Errorf("%v: who comes back after hours is told %+v, want a gap and two events", err, page)
		}
		for _, tr := range all {
			if faults, err := tr.Judge(ever, nil); err != nil || len(faults) > 0 {
				t.Errorf("%s: %v, faults %v", tr.Way, err, faults)
			}
		}
		end()
		clients.Wait()
		cancel()
		parts.Wait()
	})
}
