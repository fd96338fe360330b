package gateway_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/live"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

// keys are those of the book's accounts, which a test may take away.
type keys struct {
	*seal.Ring

	mu   sync.Mutex
	gone map[schemas.AccountID]bool
}

func (k *keys) KeyHashes(a schemas.AccountID) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone[a] {
		return nil
	}
	return []string{hashOf(map[schemas.AccountID]string{alice: aliceKey, bob: bobKey}[a])}
}

func (k *keys) rotate(a schemas.AccountID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone[a] = true
}

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func newKeys(t *testing.T) *keys {
	t.Helper()
	ring, err := seal.NewRing(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	return &keys{Ring: ring, gone: map[schemas.AccountID]bool{}}
}

// ticketed is an edge that makes attach tokens.
func ticketed(t *testing.T, change ...func(*gateway.Options)) (*edge, *keys) {
	t.Helper()
	k := newKeys(t)
	return open(t, append(change, func(o *gateway.Options) { o.Keys = k })...), k
}

// token has an attach token made for some conversations.
func (e *edge) token(body string) string {
	e.t.Helper()
	a := e.post("/v1/attach-tokens", body)
	made := decode[gateway.AttachToken](e.t, a)
	if a.status != http.StatusCreated || !strings.HasPrefix(made.Token, attachtoken.Prefix) {
		e.t.Fatalf("%d %s: no attach token", a.status, a.body)
	}
	return made.Token
}

// signed is a token for c_1 and all ops that ends in a while, without asking the gateway.
func signed(t *testing.T, k *keys, a schemas.AccountID, key string, left time.Duration) string {
	t.Helper()
	token, err := attachtoken.Signer{Keys: k}.Sign(attachtoken.Claims{
		Account: a, Key: attachtoken.FingerprintOf(hashOf(key)), Conversations: []string{"c_1"}, Ops: attachtoken.Ops(),
		Expires: time.Now().Add(left),
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func asProtocol(token string) http.Header {
	return http.Header{"Sec-Websocket-Protocol": {"sandjet.v1, sandjet.key." + token}}
}

func TestAnAttachTokenOpensItsConversationsAndNothingElse(t *testing.T) {
	e, _ := ticketed(t)
	e.note("c_1", 0, "x")
	token := e.token(`{"conversations":["c_1","support-*"]}`)
	sse := http.Header{"Accept": {"text/event-stream"}}
	for _, c := range []struct {
		method, path, body string
		header             http.Header
		want               int
	}{
		{http.MethodGet, "/v1/conversations/c_1/events", "", nil, http.StatusOK},
		{http.MethodGet, "/v1/conversations/support-7/events", "", nil, http.StatusOK},
		{http.MethodGet, "/v1/conversations/support-7/events?wait=10ms", "", nil, http.StatusOK},
		{http.MethodGet, "/v1/conversations/c_2/events", "", nil, http.StatusForbidden},
		{http.MethodGet, "/v1/conversations/c_2/events?wait=1", "", nil, http.StatusForbidden},
		{http.MethodGet, "/v1/conversations/c_2/events", "", sse, http.StatusForbidden},
		{http.MethodGet, "/v1/conversations/c_2/events?compact=1", "", nil, http.StatusForbidden},
		{http.MethodPost, "/v1/conversations/c_1/events", `{}`, nil, http.StatusForbidden},
		{http.MethodPost, "/v1/calls", `{}`, nil, http.StatusForbidden},
		{http.MethodGet, "/v1/jobs", "", nil, http.StatusForbidden},
		{http.MethodGet, "/v1/accounts/me", "", nil, http.StatusForbidden},
		{http.MethodPost, "/v1/attach-tokens", `{"conversations":["*"]}`, nil, http.StatusForbidden},
	} {
		if got := e.do(ask{method: c.method, path: c.path, body: c.body, key: token, header: c.header}); got.status != c.want {
			t.Errorf("%s %s: %d %s; want %d", c.method, c.path, got.status, got.body, c.want)
		}
	}
	for name, credential := range map[string]string{"changed": token + "A", "cut": token[:40], "none": attachtoken.Prefix} {
		if got := e.do(ask{method: http.MethodGet, path: "/v1/conversations/c_1/events",
			key: credential}); got.status != http.StatusUnauthorized {
			t.Errorf("%s: %d; want 401", name, got.status)
		}
		if _, resp, err := e.dial(asProtocol(credential)); err == nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a socket with one that is %s: %v; want 401", name, err)
		}
	}
	if got := e.do(ask{method: http.MethodGet, path: "/v1/conversations/c_1/events?access_token=" + token,
		key: "-"}); got.status != http.StatusUnauthorized {
		t.Errorf("in the URL: %d; want 401", got.status)
	}
}

func TestAnAttachTokenIsMadeOfWhatIsValid(t *testing.T) {
	e, _ := ticketed(t)
	for body, field := range map[string]string{
		`{}`:                                    "conversations",
		`{"conversations":[]}`:                  "conversations",
		`{"conversations":["c"],"ops":["all"]}`: "ops",
		`{"conversations":["c"],"ttl":"25h"}`:   "ttl",
		`{"conversations":["c"],"ttl":"0s"}`:    "ttl",
	} {
		if a := e.post("/v1/attach-tokens", body); a.status != http.StatusBadRequest || a.problem(t).Field != field {
			t.Errorf("%s: %d %s; want 400 for %s", body, a.status, a.body, field)
		}
	}
	if a := open(t).post("/v1/attach-tokens", `{"conversations":["c"]}`); a.status != http.StatusNotImplemented {
		t.Errorf("without keys: %d; want 501", a.status)
	}
}

func TestASocketMayDoWhatItsTokenAllows(t *testing.T) {
	e, _ := ticketed(t)
	e.work()
	e.note("c_1", 0, "x")
	s, _, err := e.dial(asProtocol(e.token(`{"conversations":["c_1"],"ops":["read","send"]}`)))
	if err != nil {
		t.Fatal(err)
	}
	if s.c.Subprotocol() != "sandjet.v1" {
		t.Errorf("subprotocol %q", s.c.Subprotocol())
	}
	s.write(`{"op":"attach","id":1,"conv":"c_1"}`)
	s.until("live")
	other := decode[struct {
		ID string `json:"id"`
	}](t, e.post("/v1/calls", `{"conversation":"c_2","tool":"bash","input":{"command":"true"}}`))
	for _, c := range []struct{ frame, want string }{
		{`{"op":"attach","id":2,"conv":"c_2"}`, "error"},
		{`{"op":"send","id":2,"request":{"conversation":"c_2","tool":"bash","input":{"command":"true"}}}`, "error"},
		{`{"op":"send","id":2,"request":{"tool":"bash","input":{"command":"true"}}}`, "error"},
		{`{"op":"cancel","id":2,"call":"` + other.ID + `"}`, "error"},
		{`{"op":"send","id":2,"request":{"conversation":"c_1","tool":"bash","input":{"command":"true"}}}`, "accepted"},
	} {
		s.write(c.frame)
		f := s.next()
		for f.ID == nil || *f.ID != 2 {
			f = s.next() // events of c_1
		}
		if f.Op != c.want || c.want == "error" && f.Error.Code != schemas.Denied {
			t.Errorf("%s: %+v; want %s", c.frame, f, c.want)
		}
	}
}

func TestATokenIsRenewedInBand(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, k *keys) {
		s, _, err := e.dial(asProtocol(signed(t, k, alice, aliceKey, 8*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.c.Close() // or else the gateway's end would write to a pipe without a reader
		if f := s.next(); f.Op != "expiring" {
			t.Errorf("%+v; want a warning", f)
		}
		s.write(`{"op":"attach","conv":"c_1"}`)
		s.until("live")
		s.write(`{"op":"auth","id":1,"token":"` + signed(t, k, bob, bobKey, time.Minute) + `"}`)
		if f := s.next(); f.Op != "error" || f.Error.Code != schemas.Denied {
			t.Errorf("with another account's: %+v; want denied", f)
		}
		s.write(`{"op":"auth","id":2,"token":"` + e.token(`{"conversations":["c_1","c_2"]}`) + `"}`)
		if f := s.next(); f.Op != "authed" || *f.ID != 2 {
			t.Errorf("%+v; want authed", f)
		}
		s.write(`{"op":"attach","conv":"c_2"}`)
		s.until("live")
		s.write(`{"op":"auth","id":3,"token":"` + e.token(`{"conversations":["c_2"]}`) + `"}`)
		s.until("authed")
		if f := s.next(); f.Op != "error" || f.Conv != "c_1" || f.Error.Code != schemas.Denied {
			t.Errorf("%+v; want c_1 to be detached", f)
		}
		e.note("c_1", 0, "x")
		e.note("c_2", 0, "x")
		if f := s.next(); f.Op != "ev" || f.Conv != "c_2" {
			t.Errorf("%+v; want the event of c_2 alone", f)
		}
	})
}

func TestASocketEndsWithItsToken(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, k *keys) {
		s, _, err := e.dial(asProtocol(signed(t, k, alice, aliceKey, 2*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		if code, before := s.closedWith(); code != int(live.CloseAuth) || len(before) != 1 || before[0].Op != "expiring" {
			t.Errorf("closed with %d after %+v; want 4002 after a warning", code, before)
		}
		k.rotate(bob)
		if _, resp, err := e.dial(asProtocol(signed(t, k, bob, bobKey, time.Minute))); err == nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with a token of a key that is gone: %v; want 401", err)
		}
	})
}

func TestAnEventStreamEndsWithItsToken(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, k *keys) {
		for _, query := range []string{"", "?compact=1"} {
			header := http.Header{"Authorization": {"Bearer " + signed(t, k, alice, aliceKey, 2*time.Second)}}
			lines := e.stream(t.Context(), "/v1/conversations/c_1/events"+query, header)
			last := ""
			for lines.Scan() {
				if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					last = text
				}
			}
			if !strings.Contains(last, "the attach token has expired") {
				t.Errorf("%q: the last that was told is %s; want the token's end", query, last)
			}
		}
	})
}

func TestAClientMaySayWhoItIsByItsFirstFrame(t *testing.T) {
	e, _ := ticketed(t)
	e.note("c_1", 0, "x")
	later := http.Header{"Sec-Websocket-Protocol": {"sandjet.v1, sandjet.auth"}}
	s, _, err := e.dial(later)
	if err != nil {
		t.Fatal(err)
	}
	s.write(`{"op":"attach","conv":"c_1"}`)
	if f := s.next(); f.Op != "error" || f.Error.Code != schemas.Denied {
		t.Errorf("%+v; want denied", f)
	}
	s.write(`{"op":"auth","token":"` + e.token(`{"conversations":["c_1"]}`) + `"}`)
	s.until("authed")
	s.write(`{"op":"attach","conv":"c_1"}`)
	if all := s.until("live"); len(all) != 3 {
		t.Errorf("%+v; want attached, one event, live", all)
	}
	for _, credential := range []string{"sjat_no", "sk_nobody"} {
		s, _, err := e.dial(later)
		if err != nil {
			t.Fatal(err)
		}
		s.write(`{"op":"auth","token":"` + credential + `"}`)
		if code, before := s.closedWith(); code != int(live.CloseAuth) || len(before) != 1 || before[0].Op != "error" {
			t.Errorf("%s: closed with %d after %+v; want 4002 after an error", credential, code, before)
		}
	}
}

func TestOtherOriginsAreRefused(t *testing.T) {
	e, _ := ticketed(t, func(o *gateway.Options) { o.Origins = []string{"https://app.example.com"} })
	token := e.token(`{"conversations":["c_1"]}`)
	for origin, ok := range map[string]bool{"https://app.example.com": true, "https://evil.example.com": false, "null": false, "": true} {
		h := asProtocol(token)
		get := http.Header{}
		if origin != "" {
			h.Set("Origin", origin)
			get.Set("Origin", origin)
		}
		s, resp, err := e.dial(h)
		if (err == nil) != ok || err != nil && resp.StatusCode != http.StatusForbidden {
			t.Errorf("a socket from %q: %v; want ok %v", origin, err, ok)
		}
		if err == nil {
			s.c.Close()
		}
		want := http.StatusOK
		if !ok {
			want = http.StatusForbidden
		}
		if got := e.do(ask{method: http.MethodGet, path: "/v1/conversations/c_1/events", key: token, header: get}); got.status != want {
			t.Errorf("events from %q: %d %s; want %d", origin, got.status, got.body, want)
		}
	}
}

func TestAnAccountHoldsNoMoreThanItMay(t *testing.T) {
	e := open(t, func(o *gateway.Options) { o.Limits = gateway.Limits{Sockets: 2, Attachments: 3, AllSockets: 3} })
	first, second := e.socket(), e.socket()
	_, resp, err := e.dial(nil)
	if err == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("a third socket: %v; want 429 and when to come back", err)
	}
	if a := e.do(ask{method: http.MethodGet, path: "/v1/conversations/c/events",
		header: http.Header{"Accept": {"text/event-stream"}}}); a.status != http.StatusTooManyRequests {
		t.Errorf("a stream beside them: %d; want 429", a.status)
	}
	if a := e.get("/v1/conversations/c/events?wait=1ms"); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("a long poll beside them: %d %v; want 429 and when to come back", a.status, a.header)
	}
	if a := e.get("/v1/conversations/c/events"); a.status != http.StatusOK {
		t.Errorf("a look beside them: %d; want 200", a.status)
	}
	if a := e.do(ask{method: http.MethodPut, path: "/v1/streams/s"}); a.status != http.StatusCreated {
		t.Fatalf("a durable stream: %d %s", a.status, a.body)
	}
	for query, want := range map[string]int{
		"": http.StatusOK, "&live=long-poll": http.StatusTooManyRequests, "&live=sse": http.StatusTooManyRequests,
	} {
		if a := e.get("/v1/streams/s?offset=-1" + query); a.status != want {
			t.Errorf("a durable stream with %q beside them: %d %s; want %d", query, a.status, a.body, want)
		}
	}
	asBob := http.Header{"Authorization": {"Bearer " + bobKey}}
	if _, _, err := e.dial(asBob); err != nil {
		t.Errorf("another account: %v", err)
	}
	if _, resp, err := e.dial(asBob); err == nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one more than there may be: %v; want 503 and when to come back", err)
	}
	for n := range 3 {
		first.write(fmt.Sprintf(`{"op":"attach","conv":"c_%d","compact":%t}`, n, n == 1))
		first.until("live")
	}
	second.write(`{"op":"attach","conv":"c_9"}`)
	if f := second.next(); f.Op != "error" || f.Error.Code != schemas.Exhausted {
		t.Errorf("a fourth conversation: %+v; want exhausted", f)
	}
	first.write(`{"op":"detach","conv":"c_1"}`)
	first.until("detached")
	second.write(`{"op":"attach","conv":"c_9"}`)
	second.until("live")
	first.c.Close()
	eventually(t, "the place of a closed socket is free",
		func() bool { return e.get("/v1/conversations/c/events?wait=1ms").status == http.StatusOK })
	eventually(t, "the place of a long poll that was answered is free", func() bool {
		s, _, err := e.dial(nil)
		if err == nil {
			s.c.Close()
		}
		return err == nil
	})
}

func TestACompactSocketIsToldFinishedCallsWhole(t *testing.T) {
	e := open(t)
	c := schemas.Call{ID: "call_1", Account: alice, Conversation: "c_1"}
	told := func(n int, typ schemas.EventType, data any) {
		e.publish(schemas.NewEvent(c, typ, fmt.Sprint("compact.", n), time.Now(), data))
	}
	told(0, schemas.CallStarted, schemas.StartedData{Call: c.ID})
	told(1, schemas.CallOutput, schemas.OutputData{Call: c.ID, Stream: "stdout", Text: "ab", Bytes: 2, Attempt: 1})
	told(2, schemas.CallOutput, schemas.OutputData{Call: c.ID, Stream: "stdout", Text: "cd", Offset: 2, Bytes: 2, Attempt: 1})
	told(3, schemas.CallFinished, schemas.Result{Call: c.ID})
	d := c
	d.ID = "call_2"
	e.publish(schemas.NewEvent(d, schemas.CallOutput, "compact.4", time.Now(),
		schemas.OutputData{Call: d.ID, Stream: "stdout", Text: "ef", Bytes: 2, Attempt: 1}))

	s := e.socket()
	s.write(`{"op":"attach","conv":"c_1","compact":true}`)
	all := s.until("live")
	var ops []string
	prev := "-1"
	for _, f := range all {
		ops = append(ops, f.Op+" "+string(f.Data.Type))
		if f.Op == "ev" {
			if f.Prev != prev {
				t.Errorf("%s follows %s; want %s", f.Cur, f.Prev, prev)
			}
			prev = f.Cur
		}
	}
	if got := strings.Join(ops, "|"); got != "attached |ev call.started|ev call.finished|ev call.output|live " {
		t.Errorf("told %s", got)
	}
	later := e.socket()
	later.write(`{"op":"attach","conv":"c_1","after":"now","compact":true}`)
	later.until("live")
	e.publish(schemas.NewEvent(d, schemas.CallOutput, "compact.5", time.Now(),
		schemas.OutputData{Call: d.ID, Stream: "stdout", Text: "gh", Offset: 2, Bytes: 2, Attempt: 1}))
	if f, ev := later.next(), later.next(); f.Op != "snapshot" || ev.Op != "ev" || ev.Prev != prev {
		t.Errorf("from now: %+v, %+v; want a snapshot before the piece", f, ev)
	}
	page := e.get("/v1/conversations/c_1/events?compact=1&limit=2")
	type pageOf struct {
		Events []struct {
			Skipped  int             `json:"skipped"`
			Snapshot json.RawMessage `json:"snapshot"`
		} `json:"events"`
		Next string `json:"next"`
	}
	out := decode[pageOf](t, page)
	if len(out.Events) != 2 || out.Events[1].Skipped != 2 {
		t.Errorf("page %s; want the start, and the end with two left out before it", page.body)
	}
	page = e.get("/v1/conversations/c_1/events?compact=1&after=" + out.Next)
	if out = decode[pageOf](t, page); len(out.Events) != 2 || out.Events[0].Skipped != 0 {
		t.Errorf("page %s; want two pieces", page.body)
	}
	waited := make(chan answer, 1)
	go func() { waited <- e.get("/v1/conversations/c_1/events?compact=1&wait=60s&after=" + out.Next) }()
	e.publish(schemas.NewEvent(d, schemas.CallOutput, "compact.6", time.Now(),
		schemas.OutputData{Call: d.ID, Stream: "stdout", Text: "ij", Offset: 4, Bytes: 2, Attempt: 1}))
	page = <-waited
	if out = decode[pageOf](t, page); len(out.Events) != 1 || !strings.Contains(string(out.Events[0].Snapshot), `"text":"efgh"`) {
		t.Errorf("waited for: %s; want a piece and what was printed before it", page.body)
	}
	lines := e.stream(t.Context(), "/v1/conversations/c_1/events?compact=1", nil)
	if got := idsOf(lines); len(got) != 6 { // start, end, three pieces, and where it is live
		t.Errorf("the stream has %q; want 6 ids", got)
	}
}

// idsOf reads a stream up to where it is live.
func idsOf(lines *bufio.Scanner) []string {
	var ids []string
	for live := false; lines.Scan() && (!live || lines.Text() != ""); { // the id is the last line of an event
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			ids = append(ids, id)
		}
		live = live || strings.Contains(lines.Text(), "upToDate")
	}
	return ids
}
