// Package modeltest is the suite of all clients of models: it has a client ask a server that answers by a script.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandjet/sandjet/internal/fakemodel"
	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
)

// Key is the key of the server; it must stand in no error.
const Key = "sk-secret-0123456789"

// Client describes the client under test.
type Client struct {
	Wire schemas.Wire
	// New opens one. Its URL is Base below the server's.
	New  func(models.Options) (models.Client, error)
	Base string
	// Words of the wire: a reason for the end, and the type of an error within a stream.
	MaxTokens, Busy string
	// Other is the JSON of a block that clients do not know.
	Other string
}

// open starts a server with a script and returns a client of it.
func (c Client) open(t *testing.T, s fakemodel.Script, with models.Options) (models.Client, *fakemodel.Server) {
	t.Helper()
	s.Key = Key
	server, err := fakemodel.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return c.dial(t, server, with), server
}

func (c Client) dial(t *testing.T, h http.Handler, with models.Options) models.Client {
	t.Helper()
	at := httptest.NewServer(h)
	t.Cleanup(at.Close)
	with.URL = at.URL + c.Base
	if with.Key == "" {
		with.Key = Key
	}
	client, err := c.New(with)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Request returns a request with the tools bash and look.
func Request(messages ...schemas.ModelMessage) models.Request {
	schema := json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}}}`)
	return models.Request{Model: "m-1", System: "Be brief.", MaxTokens: 100, Cache: true, Messages: messages,
		Tools: []models.Tool{{Name: "bash", Description: "runs", Schema: schema}, {Name: "look", Schema: schema}}}
}

// Said returns a message of the user.
func Said(text string) schemas.ModelMessage {
	return schemas.ModelMessage{Role: schemas.RoleUser, Blocks: []schemas.Block{{Type: schemas.BlockText, Text: text}}}
}

// Ask sends a request, and checks that the answer comes after all deltas and that its texts are those of the deltas. The error is the
// client's.
func Ask(ctx context.Context, t *testing.T, c models.Client, r models.Request) (*models.Answer, error) {
	t.Helper()
	var text, thinking strings.Builder
	var answer *models.Answer
	var failed error
	for d, err := range c.Stream(ctx, r) {
		if answer != nil || failed != nil {
			t.Fatal("something follows the end")
		}
		text.WriteString(d.Text)
		thinking.WriteString(d.Thinking)
		answer, failed = d.Answer, err
	}
	if failed != nil {
		if strings.Contains(failed.Error(), Key) || strings.Contains(fmt.Sprintf("%+v", failed), Key) {
			t.Errorf("the key is in the error %v", failed)
		}
		return nil, failed
	}
	if answer == nil {
		t.Fatal("neither an answer nor an error came")
	}
	var said, thought string
	for _, b := range answer.Blocks {
		switch b.Type {
		case schemas.BlockText:
			said += b.Text
		case schemas.BlockThinking:
			thought += b.Text
		default:
		}
	}
	if said != text.String() || thought != thinking.String() {
		t.Errorf("the deltas say %q and %q, the answer %q and %q", text.String(), thinking.String(), said, thought)
	}
	return answer, nil
}

// Failed sends a request that must fail with an [*models.Error], and returns the error.
func Failed(t *testing.T, c models.Client, r models.Request) *models.Error {
	t.Helper()
	_, err := Ask(t.Context(), t, c, r)
	e, ok := errors.AsType[*models.Error](err)
	if !ok {
		t.Fatalf("it is %v, not an error of a model", err)
	}
	return e
}

// rich returns an answer with every kind of block.
func (c Client) rich() fakemodel.Reply {
	return fakemodel.Reply{Think: "Hm, <think> & \"quotes\" ä😀.", Say: "Let me see: 😀 <b>&</b>\n", Other: json.RawMessage(c.Other),
		Call: []fakemodel.Use{
			{Tool: "bash", Input: json.RawMessage(`{"command":"echo \"<ä>\" && ls"}`)}, {Tool: "look"}, {Tool: "bash", Raw: `{"command": "cut o`}},
		Usage: &fakemodel.Usage{In: 10, CacheRead: 20, CacheWrite: 5, Out: 7}}
}

// results returns the results of all uses in an answer, the last first.
func results(a *models.Answer) (m schemas.ModelMessage) {
	m.Role = schemas.RoleUser
	for _, b := range a.Blocks {
		if b.Type == schemas.BlockToolUse {
			r := schemas.Block{Type: schemas.BlockToolResult, Use: b.Use, Text: "result of " + b.Name, IsError: b.Name == "look"}
			m.Blocks = append([]schemas.Block{r}, m.Blocks...)
		}
	}
	return m
}

// Run runs the suite for a client.
func Run(t *testing.T, c Client) {
	t.Run("an answer is whole", func(t *testing.T) {
		client, _ := c.open(t, fakemodel.Script{Rules: []fakemodel.Rule{{Reply: c.rich()}}}, models.Options{})
		a, err := Ask(t.Context(), t, client, Request(Said("go")))
		if err != nil {
			t.Fatal(err)
		}
		if a.Stop != models.StopToolUse || a.Model != "m-1" || a.Usage != (schemas.TokenUsage{In: 10, CacheRead: 20, CacheWrite: 5, Out: 7}) {
			t.Errorf("%+v", a)
		}
		var kinds []schemas.BlockType
		var inputs []string
		for _, b := range a.Blocks {
			kinds = append(kinds, b.Type)
			if b.Wire != c.Wire || b.Model != "m-1" || !json.Valid(b.Raw) {
				t.Errorf("a block is %+v", b)
			}
			if b.Type == schemas.BlockToolUse {
				inputs = append(inputs, b.Name+" "+string(b.Input))
			}
		}
		if want := []schemas.BlockType{"thinking", "other", "text", "tool_use", "tool_use", "tool_use"}; !reflect.DeepEqual(kinds, want) {
			t.Errorf("the blocks are %v, not %v", kinds, want)
		}
		want := []string{`bash {"command":"echo \"<ä>\" && ls"}`, "look {}", `bash "{\"command\": \"cut o"`}
		if !reflect.DeepEqual(inputs, want) {
			t.Errorf("the inputs are %q, not %q", inputs, want)
		}
	})
	t.Run("a conversation goes on, here and elsewhere", func(t *testing.T) { c.conversation(t) })
	t.Run("stops", func(t *testing.T) {
		client, _ := c.open(t, fakemodel.Script{Rules: []fakemodel.Rule{
			{Contains: "long", Reply: fakemodel.Reply{Say: "cut", Stop: c.MaxTokens}},
			{Contains: "bad", Reply: fakemodel.Reply{Refuse: "I will not."}},
			{Contains: "new", Reply: fakemodel.Reply{Say: "x", Stop: "a_reason_of_next_year"}},
		}}, models.Options{})
		for text, want := range map[string]models.Stop{"long": models.StopMaxTokens, "bad": models.StopRefusal, "new": models.StopEnd} {
			if a, err := Ask(t.Context(), t, client, Request(Said(text))); err != nil || a.Stop != want {
				t.Errorf("%s: %+v, %v", text, a, err)
			}
		}
	})
	t.Run("errors", func(t *testing.T) { c.errors(t) })
	t.Run("a stream that breaks", func(t *testing.T) { c.breaks(t) })
	t.Run("times", func(t *testing.T) { c.times(t) })
	t.Run("pieces make no difference", func(t *testing.T) { c.pieces(t) })
	t.Run("options", func(t *testing.T) { c.options(t) })
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c Client) errors(t *testing.T) {
	t.Helper()
	ok := func(e *models.Error, class models.Class, status int) bool {
		return e.Class == class && e.Status == status && !e.Begun
	}
	client, server := c.open(t, fakemodel.Script{Rules: []fakemodel.Rule{
		{Contains: "429", Reply: fakemodel.Reply{Status: 429, RetryAfter: "7", Message: "slow down, " + Key}},
		{Contains: "503", Reply: fakemodel.Reply{Status: 503, RetryAfter: time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}},
		{Contains: "402", Reply: fakemodel.Reply{Status: 402, Message: "pay"}},
		{Contains: "413", Reply: fakemodel.Reply{Status: 413}},
		{Contains: "307", Reply: fakemodel.Reply{Status: 307}},
		{Contains: "404", Reply: fakemodel.Reply{Status: 404, Message: strings.Repeat("long\r\n", 1000)}},
	}}, models.Options{})
	for _, row := range []struct {
		text   string
		class  models.Class
		status int
		least  time.Duration
		most   time.Duration
	}{
		{"429", models.RateLimited, 429, 7 * time.Second, 7 * time.Second},
		{"503", models.Overloaded, 503, 50 * time.Minute, time.Hour},
		{"402", models.SpendLimit, 402, 0, 0},
		{"413", models.TooLong, 413, 0, 0},
		{"307", models.BadRequest, 307, 0, 0},
		{"404", models.BadRequest, 404, 0, 0},
	} {
		e := Failed(t, client, Request(Said(row.text)))
		if !ok(e, row.class, row.status) || e.After < row.least || e.After > row.most || len(e.Message) > 1100 ||
			strings.ContainsAny(e.Message, "\r\n") {
			t.Errorf("%s: %+v", row.text, e)
		}
	}
	if _, n := server.Requests(); n != 6 {
		t.Errorf("six requests were %d: one was repeated, or a redirection followed", n)
	}
	// The server refuses a transcript that is wrong: a use without its result.
	said := func(b schemas.Block) schemas.ModelMessage {
		return schemas.ModelMessage{Role: schemas.RoleAssistant, Blocks: []schemas.Block{b}}
	}
	use := said(schemas.Block{Type: schemas.BlockToolUse, Use: "u1", Name: "bash", Input: json.RawMessage(`{}`)})
	if e := Failed(t, client, Request(Said("a"), use, Said("b"))); !ok(e, models.BadRequest, 400) || !strings.Contains(e.Message, "u1") {
		t.Errorf("%+v", e)
	}
	orphan := schemas.ModelMessage{Role: schemas.RoleUser, Blocks: []schemas.Block{{Type: schemas.BlockToolResult, Use: "u2", Text: "x"}}}
	if e := Failed(t, client, Request(orphan)); !ok(e, models.BadRequest, 400) {
		t.Errorf("%+v", e)
	}
	broken := said(schemas.Block{Type: "other", Raw: json.RawMessage(`{"`), Wire: c.Wire, Model: "m-1"})
	if e := Failed(t, client, Request(Said("a"), broken, Said("b"))); !ok(e, models.BadRequest, 0) {
		t.Errorf("%+v", e)
	}
	server2, err := fakemodel.New(fakemodel.Script{Key: "another"})
	if err != nil {
		t.Fatal(err)
	}
	if e := Failed(t, c.dial(t, server2, models.Options{}), Request(Said("a"))); !ok(e, models.BadKey, 401) {
		t.Errorf("%+v", e)
	}
	html := c.dial(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }), models.Options{})
	if e := Failed(t, html, Request(Said("a"))); !ok(e, models.BadRequest, 200) {
		t.Errorf("%+v", e)
	}
	echo := c.dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // shows what it was sent
		w.WriteHeader(http.StatusTeapot)
		_ = r.Header.Write(w)
	}), models.Options{})
	if e := Failed(t, echo, Request(Said("a"))); !strings.Contains(e.Message, "[key]") {
		t.Errorf("%+v", e)
	}
	none := c.dial(t, http.NotFoundHandler(), models.Options{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("proxy refused " + Key)
	})})
	if e := Failed(t, none, Request(Said("a"))); !ok(e, models.Disconnected, 0) {
		t.Errorf("%+v", e)
	}
}

func (c Client) breaks(t *testing.T) {
	t.Helper()
	client, _ := c.open(t, fakemodel.Script{Rules: []fakemodel.Rule{
		{Contains: "early", Reply: fakemodel.Reply{Say: "x", BreakAfter: 10}},
		{Contains: "late", Reply: fakemodel.Reply{Say: strings.Repeat("many words ", 50), BreakAfter: 4000}},
		{Contains: "garbage", Reply: fakemodel.Reply{Say: "some words that come", BadJSON: true}},
		{Contains: "busy", Reply: fakemodel.Reply{Say: "some", StreamError: c.Busy, Message: "later"}},
		{Contains: "slow", Reply: fakemodel.Reply{Say: strings.Repeat("many words ", 50), Pace: fakemodel.Duration(time.Millisecond)}},
	}}, models.Options{})
	for _, row := range []struct {
		text  string
		class models.Class
		begun bool
	}{
		{"early", models.Disconnected, false}, {"late", models.Disconnected, true}, {"garbage", models.Disconnected, true},
		{"busy", models.Overloaded, true},
	} {
		if e := Failed(t, client, Request(Said(row.text))); e.Class != row.class || e.Begun != row.begun {
			t.Errorf("%s: %+v", row.text, e)
		}
	}
	// Who leaves is not called again, and who cancels gets that.
	for d, err := range client.Stream(t.Context(), Request(Said("slow"))) {
		if err != nil || d.Text == "" {
			t.Errorf("%+v, %v", d, err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	for _, err := range client.Stream(ctx, Request(Said("slow"))) {
		cancel()
		last = err
	}
	cancel()
	if !errors.Is(last, context.Canceled) {
		t.Errorf("%v", last)
	}
}

func (c Client) times(t *testing.T) {
	t.Helper()
	forever := fakemodel.Duration(time.Hour)
	short := 20 * time.Millisecond
	for name, row := range map[string]struct {
		reply fakemodel.Reply
		times models.Timeouts
		begun bool
	}{
		"no byte": {fakemodel.Reply{Wait: forever}, models.Timeouts{FirstByte: short}, false},
		"no end": {fakemodel.Reply{Say: strings.Repeat("x", 60000), Pace: fakemodel.Duration(time.Millisecond)},
			models.Timeouts{Total: 200 * time.Millisecond}, true},
		"no header": {fakemodel.Reply{Pace: forever}, models.Timeouts{FirstByte: short}, false},
	} {
		client, _ := c.open(t, fakemodel.Script{Rules: []fakemodel.Rule{{Reply: row.reply}}}, models.Options{Timeouts: row.times})
		e := Failed(t, client, Request(Said("a")))
		if e.Class != models.Disconnected || e.Begun && !row.begun || !strings.Contains(e.Message, "within") {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if e := Failed(t, c.stalled(t), Request(Said("a"))); e.Class != models.Disconnected || !strings.Contains(e.Message, "nothing more") {
		t.Errorf("%+v", e)
	}
}

// stalled returns a client whose server sends one comment and then nothing.
func (c Client) stalled(t *testing.T) models.Client {
	t.Helper()
	return c.dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": here\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), models.Options{Timeouts: models.Timeouts{Chunk: 20 * time.Millisecond}})
}

func (c Client) conversation(t *testing.T) {
	t.Helper()
	reply := c.rich()
	client, server := c.open(t, fakemodel.Script{Rules: []fakemodel.Rule{{Request: 1, Reply: reply}}}, models.Options{})
	a, err := Ask(t.Context(), t, client, Request(Said("go")))
	if err != nil {
		t.Fatal(err)
	}
	history := []schemas.ModelMessage{Said("go"), {Role: schemas.RoleAssistant, Blocks: a.Blocks}, results(a)}
	b, err := Ask(t.Context(), t, client, Request(history...))
	if err != nil || !strings.Contains(b.Blocks[0].Text, "result of bash\nresult of look\nresult of bash") || b.Stop != models.StopEnd {
		t.Fatalf("%+v, %v", b, err)
	}
	list, _ := server.Requests()
	for _, block := range a.Blocks {
		raw := string(block.Raw)
		if c.Wire == schemas.WireOpenAI && block.Type != schemas.BlockToolUse {
			raw = strings.Trim(raw, "{}") // a field of its message
		}
		if !strings.Contains(string(list[1].Body), raw) {
			t.Errorf("what goes back has no %s: %s", raw, list[1].Body)
		}
	}
	// To another model, and as another wire's: nothing of it is raw, and ids are made valid.
	for i := range history[1].Blocks {
		u := &history[1].Blocks[i]
		if u.Type == schemas.BlockToolUse {
			u.Use = strings.Repeat("x:", 30) + u.Use
		}
	}
	history[2] = results(&models.Answer{Blocks: history[1].Blocks})
	other := Request(history...)
	other.Model = "m-2"
	if _, err := Ask(t.Context(), t, client, other); err != nil {
		t.Fatal(err)
	}
	list, _ = server.Requests()
	body := string(list[2].Body)
	if strings.Contains(body, "Hm, ") || strings.Contains(body, c.Other) || !strings.Contains(body, "Let me see") {
		t.Errorf("another model is sent %s", body)
	}
}

func (c Client) pieces(t *testing.T) {
	t.Helper()
	// What the server sends is recorded once, then cut at each byte.
	reply := c.rich()
	server, err := fakemodel.New(fakemodel.Script{Rules: []fakemodel.Rule{{Reply: reply}}})
	if err != nil {
		t.Fatal(err)
	}
	var stream []byte
	cut := -1
	var o models.Options
	o.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if stream == nil {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			stream = w.Body.Bytes()
		}
		body := iotest.OneByteReader(strings.NewReader(string(stream)))
		if cut >= 0 {
			body = io.MultiReader(strings.NewReader(string(stream[:cut])), strings.NewReader(string(stream[cut:])))
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}},
			Body: io.NopCloser(body), Request: r}, nil
	})
	o.Key = Key
	client, err := c.New(o)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Ask(t.Context(), t, client, Request(Said("go")))
	if err != nil {
		t.Fatal(err)
	}
	step := 1
	if testing.Short() { // as with the race detector
		step = 17
	}
	for cut = 0; cut <= len(stream); cut += step {
		if got, err := Ask(t.Context(), t, client, Request(Said("go"))); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d: %+v, %v", cut, got, err)
		}
	}
}

func (c Client) options(t *testing.T) {
	t.Helper()
	for _, o := range []models.Options{{URL: "ftp://x"}, {URL: "https://" + Key + "@host"}, {URL: "https://host?key=1"}, {Key: "a key\n" + Key}} {
		if _, err := c.New(o); schemas.CodeOf(err) != schemas.Invalid || strings.Contains(err.Error(), Key) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	client, server := c.open(t, fakemodel.Script{}, models.Options{Extra: map[string]json.RawMessage{"temperature": json.RawMessage("0.5"),
		"model": json.RawMessage(`"another"`)}})
	for range 2 {
		if _, err := Ask(t.Context(), t, client, Request(Said("go"))); err != nil {
			t.Fatal(err)
		}
	}
	list, _ := server.Requests()
	if one := string(list[0].Body); !strings.Contains(one, `"temperature":0.5`) || list[0].Model != "m-1" || one != string(list[1].Body) {
		t.Errorf("%s", one)
	}
}
