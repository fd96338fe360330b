package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// peer is the gateway's end of one socket.
type peer struct {
	t *testing.T
	c *websocket.Conn
}

type op struct {
	Op       string          `json:"op"`
	ID       int64           `json:"id"`
	Conv     string          `json:"conv"`
	After    string          `json:"after"`
	Compact  bool            `json:"compact"`
	Batch    bool            `json:"batch"`
	Token    string          `json:"token"`
	Request  schemas.Request `json:"request"`
	Call     string          `json:"call"`
	Approved bool            `json:"approved"`
}

// It returns the next operation. Its end of the connection fails the test.
func (p *peer) hear(want string) op {
	var o op
	if err := p.c.ReadJSON(&o); err != nil || o.Op != want {
		p.t.Errorf("heard %+v, %v, want %s", o, err, want)
	}
	return o
}

func (p *peer) say(frames ...string) {
	for _, f := range frames {
		if err := p.c.WriteMessage(websocket.TextMessage, []byte(f)); err != nil {
			p.t.Errorf("say: %v", err)
		}
	}
}

// attached answers an attach.
func (p *peer) attached(want string) {
	o := p.hear("attach")
	if o.After != want {
		p.t.Errorf("attached after %s, want %s", o.After, want)
	}
	p.say(fmt.Sprintf(`{"op":"attached","id":%d,"conv":%q,"head":%q,"recovered":true}`, o.ID, o.Conv, cur(9)))
}

func (p *peer) end(code int) {
	_ = p.c.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(code, "because"))
}

func cur(n int) string { return fmt.Sprintf("e1_%020d", n) }

// ev is event n after event prev; 0 stands for the beginning.
func ev(n, prev int) string {
	before := "-1"
	if prev > 0 {
		before = cur(prev)
	}
	return fmt.Sprintf(`{"op":"ev","conv":"c","cur":%q,"prev":%q,"data":{"specversion":"1.0","id":"%d","type":"call.output",`+
		`"source":"/accounts/acct_a","subject":"x","time":"2026-01-01T00:00:00Z","data":{}}}`, cur(n), before, n)
}

// sockets serves one function after the other, a connection each, and runs a socket against them.
func sockets(t *testing.T, gateways ...func(*peer)) (*client.Socket, <-chan error) {
	t.Helper()
	var n atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1)) - 1
		if i >= len(gateways) {
			answer(w, http.StatusServiceUnavailable, `{"error":{"code":"unavailable","message":"stopping"}}`)
			return
		}
		if got := r.Header.Get("Authorization"); r.URL.Path != "/v1/ws" || !strings.HasPrefix(got, "Bearer ") {
			t.Errorf("%s with Authorization %q", r.URL.Path, got)
		}
		up := websocket.Upgrader{}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		gateways[i](&peer{t, conn})
	})
	ctx, cancel := context.WithCancel(context.Background())
	s, done := c.Socket(), make(chan error, 1)
	go func() {
		done <- s.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		for range done { // until it has ended
		}
	})
	return s, done
}

// It reads items as words until there are n.
func told(t *testing.T, s *client.Socket, after schemas.Cursor, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	return take(t, s.Follow(ctx, "c", after), n)
}

func take(t *testing.T, seq iter.Seq2[client.Item, error], n int) (all []string) {
	t.Helper()
	for it, err := range seq {
		switch {
		case it.Snapshot != nil:
			all = append(all, "snapshot"+string(it.Snapshot))
		case err != nil:
			all = append(all, fmt.Sprint(schemas.CodeOf(err)))
		case it.Gap != nil:
			all = append(all, "gap"+string(it.Gap))
		case it.Live:
			all = append(all, "live")
		default:
			all = append(all, it.Event.ID)
		}
		if len(all) == n {
			break
		}
	}
	return all
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("told %v, want %v", got, want)
	}
}

func TestASocketResumesAfterTheLastEvent(t *testing.T) {
	t.Parallel()
	s, _ := sockets(t,
		func(p *peer) {
			p.attached("-1")
			p.say(ev(1, 0), ev(2, 1), `{"op":"live","conv":"c","cur":"`+cur(2)+`"}`)
		},
		func(p *peer) {
			p.attached(cur(2))
			p.say(ev(2, 1), ev(3, 2), `{"op":"live","conv":"c","cur":"`+cur(3)+`"}`, ev(4, 3))
			p.hear("detach")
		})
	same(t, told(t, s, schemas.Cursor{}, 5), "1", "2", "live", "3", "4")
}

func TestAHoleIsReadAgainFromTheLogAndOneInTheLogIsTold(t *testing.T) {
	t.Parallel()
	s, _ := sockets(t, func(p *peer) {
		p.attached("-1")
		p.say(ev(1, 0), ev(4, 3), ev(5, 4)) // the last two are of an attach that is no longer in force
		p.hear("detach")
		p.attached(cur(1))
		p.say(ev(2, 1), ev(3, 2), ev(6, 5))
		p.hear("detach")
		p.attached(cur(3))
		p.say(ev(6, 5))
		p.hear("detach")
	})
	same(t, told(t, s, schemas.Cursor{}, 5), "1", "2", "3", `gap{"from":"`+cur(3)+`","to":"`+cur(5)+`"}`, "6")
}

func TestAGapIsToldInItsPlace(t *testing.T) {
	t.Parallel()
	s, _ := sockets(t, func(p *peer) {
		o := p.hear("attach")
		p.say(fmt.Sprintf(`{"op":"attached","id":%d,"conv":"c","recovered":false,"gap":{"from":"e0_%020d","to":%q}}`, o.ID, 7, cur(0)), ev(1, 0))
		p.hear("detach")
	})
	got := told(t, s, schemas.Cursor{Epoch: "e0", Seq: 7}, 2)
	if len(got) != 2 || !strings.HasPrefix(got[0], "gap{") || got[1] != "1" {
		t.Errorf("told %v", got)
	}
}

func TestACompactReaderHearsSnapshotsInTheirPlace(t *testing.T) {
	t.Parallel()
	s, _ := sockets(t, func(p *peer) {
		o := p.hear("attach")
		if !o.Compact {
			t.Error("it is not compact")
		}
		p.say(fmt.Sprintf(`{"op":"attached","id":%d,"conv":"c","recovered":true}`, o.ID), ev(2, 0),
			`{"op":"snapshot","conv":"c","snapshot":{"call":"x"}}`, ev(5, 2), `{"op":"live","conv":"c","cur":"`+cur(8)+`","skipped":3}`, ev(9, 8))
		p.hear("detach")
	})
	same(t, take(t, s.FollowCompact(t.Context(), "c", schemas.Cursor{}), 5), "2", `snapshot{"call":"x"}`, "5", "live", "9")
}

func TestASlowReaderIsDetachedAndComesBack(t *testing.T) {
	t.Parallel()
	const all = 3000
	left := make(chan struct{})
	s, _ := sockets(t, func(p *peer) {
		p.attached("-1")
		p.say(ev(1, 0))
		for n := 1; n < all; n++ {
			p.say(ev(n+1, n))
		}
		p.hear("detach")
		close(left)
		for from := uint64(1024); ; { // it may fall behind again, any number of times
			var o op
			if p.c.ReadJSON(&o) != nil {
				return // it has read all, and the socket has ended
			}
			after, err := schemas.ParseCursor(o.After)
			if o.Op != "attach" || err != nil || after.Seq < from || after.Seq >= all {
				t.Errorf("%s after %s, %v", o.Op, o.After, err)
				return
			}
			from = after.Seq
			p.say(fmt.Sprintf(`{"op":"attached","id":%d,"conv":"c","recovered":true}`, o.ID))
			for n := int(from); n < all; n++ {
				p.say(ev(n+1, n))
			}
			p.hear("detach")
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	for it, err := range s.Follow(ctx, "c", schemas.Cursor{}) {
		if n++; n == 1 {
			<-left // by now all that fits has come, and the client took none of it
		}
		if err != nil || it.Event.ID != fmt.Sprint(n) {
			t.Fatalf("item %d: %+v, %v", n, it, err)
		}
		if n == all {
			break
		}
	}
}

func TestQuestionsAreAskedAgainAndTheSame(t *testing.T) {
	t.Parallel()
	first := make(chan op, 1)
	s, _ := sockets(t,
		func(p *peer) { first <- p.hear("send") },
		func(p *peer) {
			o := p.hear("send")
			if f := <-first; o.ID != f.ID || o.Request.ID != f.Request.ID || o.Request.ID == "" {
				t.Errorf("asked %+v, then %+v", f, o)
			}
			p.say(fmt.Sprintf(`{"op":"accepted","id":%d,"call":%q,"conversation":"c","existing":true}`, o.ID, o.Request.ID))
			p.hear("cancel")
		},
		func(p *peer) {
			o := p.hear("cancel")
			p.say(fmt.Sprintf(`{"op":"error","id":%d,"call":"x","error":{"code":"conflict","message":"it has ended"}}`, o.ID))
			o = p.hear("approve")
			p.say(fmt.Sprintf(`{"op":"error","id":%d,"error":{"code":"not_found","message":"no"}}`, o.ID))
			_, _, _ = p.c.ReadMessage() // until the test ends
		})
	st, err := s.Send(t.Context(), bash("ls"))
	if err != nil || st.Conversation != "c" || st.ID == "" {
		t.Errorf("%+v, %v", st, err)
	}
	if err := s.Cancel(t.Context(), "x", "enough"); err != nil {
		t.Errorf("a cancel whose answer was lost: %v", err)
	}
	if err := s.Approve(t.Context(), "appr_1", schemas.ApprovalAnswer{Approved: new(true)}); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestASocketEndsByWhatWillNotPass(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]schemas.Code{4503: schemas.Invalid, 4002: schemas.Denied} {
		s, done := sockets(t, func(p *peer) {
			p.attached("-1")
			p.say(ev(1, 0))
			p.end(code)
			_, _, _ = p.c.ReadMessage() // its close frame
		})
		same(t, told(t, s, schemas.Cursor{}, 3), "1", string(want))
		if err := <-done; schemas.CodeOf(err) != want {
			t.Errorf("Run: %v", err)
		}
		if _, err := s.Send(t.Context(), bash("x")); schemas.CodeOf(err) != want {
			t.Errorf("afterwards: %v", err)
		}
	}
}

func TestARefusedKeyEndsASocket(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusUnauthorized, `{"error":{"code":"denied","message":"invalid API key"}}`)
	})
	if err := c.Socket().Run(t.Context()); !errors.Is(err, schemas.ErrDenied) {
		t.Errorf("%v", err)
	}
}

func TestTokensAreRequestedAgainAndRenewedInBand(t *testing.T) {
	t.Parallel()
	var dials, tokens atomic.Int32
	renewed := make(chan string, 1)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if want := fmt.Sprintf("Bearer t%d", tokens.Load()); r.Header.Get("Authorization") != want {
			t.Errorf("Authorization %q, want %q", r.Header.Get("Authorization"), want)
		}
		switch dials.Add(1) {
		case 1: // one that has expired meanwhile
			answer(w, http.StatusUnauthorized, `{"error":{"code":"denied","message":"expired"}}`)
			return
		case 2:
		default:
			answer(w, http.StatusServiceUnavailable, `{}`)
			return
		}
		up := websocket.Upgrader{}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		p := &peer{t, conn}
		p.say(`{"op":"expiring","in_ms":30000}`)
		renewed <- p.hear("auth").Token
		_, _, _ = conn.ReadMessage() // until the test ends
	})
	ctx, cancel := context.WithCancel(t.Context())
	s, done := c.Socket(), make(chan error, 1)
	s.Token = func(context.Context) (string, error) { return fmt.Sprintf("t%d", tokens.Add(1)), nil }
	go func() { done <- s.Run(ctx) }()
	if got := <-renewed; got != "t3" {
		t.Errorf("renewed with %s", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestOneConversationIsFollowedOnce(t *testing.T) {
	t.Parallel()
	s, _ := sockets(t, func(p *peer) {
		p.attached("-1")
		p.say(ev(1, 0))
		_, _, _ = p.c.ReadMessage() // until the test ends
	})
	for range s.Follow(t.Context(), "c", schemas.Cursor{}) {
		same(t, told(t, s, schemas.Cursor{}, 1), string(schemas.Conflict))
		break
	}
}

func FuzzSocketFrames(f *testing.F) {
	f.Add([]byte(ev(1, 0)))
	f.Add([]byte(`{"op":"gap","conv":"c","recovered":false,"gap":{"to":3}}`))
	f.Add([]byte(`{"op":"attached","id":1,"conv":"c","head":"now"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		client.HearFrame(b)
	})
}
