package gateway_test

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/records"
)

// mcpUse is a request for a tool, as a client of the protocol posts it.
func mcpUse(tool string, arguments map[string]any) string {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
		"params": map[string]any{"name": tool, "arguments": arguments}})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// unreadLarge is a client that takes what is small, and nothing else until it is let.
type unreadLarge struct{ *unread }

func (u unreadLarge) Write(b []byte) (int, error) {
	if len(b) <= web.SmallAnswer {
		return u.ResponseRecorder.Write(b)
	}
	return u.unread.Write(b)
}

// ask posts a request of whose answer the client reads nothing large until the function that it returns is called.
func (e *edge) ask(path, key, body string, header http.Header) (take func() *httptest.ResponseRecorder) {
	e.t.Helper()
	r := httptest.NewRequestWithContext(e.t.Context(), http.MethodPost, path, strings.NewReader(body))
	maps.Copy(r.Header, header)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	u, done := &unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(done)
		e.gw.ServeHTTP(unreadLarge{u}, r)
	}()
	select {
	case <-u.begun:
	case <-done: // it is small
	}
	return func() *httptest.ResponseRecorder {
		close(u.read)
		<-done
		return u.ResponseRecorder
	}
}

// TestAnswersByMCPAreCounted: a result that a client of the protocol does not read takes the account's memory for answers, and another
// one that finds none of it left is withheld, and never an error by which the call might be made again. Another account gets its own.
func TestAnswersByMCPAreCounted(t *testing.T) {
	t.Parallel()
	e := openMCP(t, func(o *gateway.Options) { o.Limits.Answers = 200 << 10 })
	e.work()
	header := http.Header{
		"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2025-11-25"},
	}
	const size = 40 << 10
	large := mcpUse("bash", map[string]any{"command": "echo " + strings.Repeat("x", size)})
	take := e.ask("/mcp?conversation=c_1", aliceKey, large, header)
	if n := e.metric("sandjet_answer_bytes"); n < 2*size {
		t.Errorf("%v bytes are counted, while an answer with %d is not read", n, 2*size)
	}
	var got struct {
		Result struct {
			IsError           bool `json:"isError"`
			StructuredContent struct {
				Status   string `json:"status"`
				Text     string `json:"text"`
				StatusID string `json:"status_id"`
			} `json:"structuredContent"`
		} `json:"result"`
	}
	post := func(key, body string) {
		t.Helper()
		w := e.ask("/mcp?conversation=c_1", key, body, header)()
		_, data, _ := strings.Cut(w.Body.String(), "data: ")
		if err := json.Unmarshal([]byte(data), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %.300s: %v", w.Code, w.Body, err)
		}
	}
	post(aliceKey, large)
	held := got.Result.StructuredContent
	if got.Result.IsError || held.Status != "running" || held.StatusID == "" || !strings.Contains(held.Text, "have not read yet") ||
		!strings.Contains(held.Text, "Do not send the call again") {
		t.Errorf("without room: %+v", got.Result)
	}
	if post(bobKey, large); len(got.Result.StructuredContent.Text) != size {
		t.Errorf("another account: %+v", got.Result)
	}
	if w := take(); !strings.Contains(w.Body.String(), strings.Repeat("x", size)) {
		t.Errorf("the first: %.300s", w.Body)
	}
	if post(aliceKey, mcpUse("async_status", map[string]any{"statusId": held.StatusID})); len(got.Result.StructuredContent.Text) != size {
		t.Errorf("afterwards: %+v", got.Result)
	}
	if n := e.metric("sandjet_answer_bytes"); n != 0 {
		t.Errorf("%v bytes are still counted", n)
	}
}

// TestStreamsOfE2BAreCounted: what a command has printed takes the account's memory for answers while the client of E2B does not read it.
// Another stream of the account waits for room, and is whole then.
func TestStreamsOfE2BAreCounted(t *testing.T) {
	t.Parallel()
	const printed = 100 << 10
	k := openKept(t, func(o *gateway.Options) {
		o.Sandboxes, o.E2B, o.Keys = sessions(o.Records.(*records.Store)), true, o.Records.(*records.Store).Accounts
		o.Limits.Answers = 400 << 10
	})
	k.workAs("local")
	a := k.do(ask{method: http.MethodPost, path: "/v2/sandboxes", body: `{"templateID":"base","timeout":600}`, key: "-",
		header: http.Header{"X-Api-Key": {k.anna.key}}})
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	token := decode[struct {
		Token string `json:"envdAccessToken"`
	}](t, a).Token
	start := func(arg string) (take func() *httptest.ResponseRecorder) {
		message, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/echo", "args": []string{arg}}})
		if err != nil {
			t.Fatal(err)
		}
		body := string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))) + string(message)
		return k.ask("/process.Process/Start", "", body, http.Header{
			"X-Access-Token": {token}, "Content-Type": {"application/connect+json"}, "Connect-Timeout-Ms": {"60000"},
		})
	}
	whole := func(w *httptest.ResponseRecorder) {
		t.Helper()
		text := w.Body.String()
		if w.Code != http.StatusOK || len(text) < printed || !strings.Contains(text, "exit status 0") {
			t.Errorf("%d, %d bytes: %.200s", w.Code, len(text), text)
		}
	}
	counted := func() float64 {
		t.Helper()
		_, rest, _ := strings.Cut(k.do(ask{path: "/metrics", key: adminKey}).body, "\nsandjet_answer_bytes ")
		text, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := start(strings.Repeat("x", printed))
	if n := counted(); n < 2*printed { // the event, and what is written of it
		t.Errorf("%v bytes are counted, while an answer with %d is not read", n, printed)
	}
	second := make(chan *httptest.ResponseRecorder)
	go func() {
		take := start(strings.Repeat("y", printed))
		second <- take()
	}()
	if w := first(); w.Code == http.StatusOK {
		whole(w)
	}
	whole(<-second)
	eventually(t, "nothing to be counted", func() bool { return counted() == 0 })
}
