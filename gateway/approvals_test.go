package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/approvals"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/gateway/natsapi"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// strict is a book whose every call needs an approval.
type strict struct{ book }

func (s strict) Resolve(ctx context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	c, err := s.book.Resolve(ctx, a, r)
	c.Approval = schemas.NewApprovalID()
	return c, err
}

func openStrict(t *testing.T) *edge {
	t.Helper()
	return open(t, func(o *gateway.Options) { o.Records = strict{} })
}

const askedBody = `{"id":"x","conversation":"c","tool":"bash","input":{"command":"echo hi"}}`

// asked hands in a call and returns its approval.
func (e *edge) asked(body string) string {
	e.t.Helper()
	a := e.post("/v1/calls", body)
	st := decode[calls.State](e.t, a)
	if a.status != http.StatusAccepted || st.Status != "awaiting_approval" || st.Approval.Validate() != nil || st.StatusID != "" {
		e.t.Fatalf("%d %s", a.status, a.body)
	}
	return string(st.Approval)
}

func TestApprovedOverHTTP(t *testing.T) {
	t.Parallel()
	e := openStrict(t)
	e.work()
	id := e.asked(`{"id":"x","conversation":"c","tool":"bash","input":{"command":"echo hi","background":true}}`)
	if a := e.get("/v1/calls/x"); !strings.Contains(a.body, `"status":"awaiting_approval"`) || !strings.Contains(a.body, id) {
		t.Errorf("%s", a.body)
	}
	if a := e.get("/v1/approvals?state=pending&conversation=c"); !strings.Contains(a.body, id) || !strings.Contains(a.body, "echo hi") {
		t.Errorf("%s", a.body)
	}
	for _, none := range []string{"?state=denied", "?conversation=other"} {
		if a := e.get("/v1/approvals" + none); a.body != `{"approvals":[],"more":false}` {
			t.Errorf("%s: %s", none, a.body)
		}
	}
	// Who waits for the result waits across the answer.
	done := make(chan answer, 1)
	go func() { done <- e.get("/v1/calls/x?wait=60") }()
	if a := e.post("/v1/approvals/"+id+"/decide", `{"approved":true,"reason":"fine"}`); a.status != http.StatusOK ||
		!strings.Contains(a.body, `"state":"approved"`) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := <-done; a.status != http.StatusOK || decode[schemas.Result](t, a).Text != "hi" {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := e.post("/v1/approvals/"+id+"/decide", `{"approved":false}`)
	if p := a.problem(t); a.status != http.StatusConflict || !strings.Contains(p.Message, "is approved already") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := e.get("/v1/approvals/" + id); decode[schemas.Approval](t, a).DecidedBy != "api" ||
		decode[schemas.Approval](t, a).Reason != "fine" {
		t.Errorf("%s", a.body)
	}
	if a := e.post("/v1/calls",
		`{"id":"x","conversation":"c","tool":"bash","input":{"command":"echo other"}}`); a.status != http.StatusConflict {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestDeniedAndCancelledOverHTTP(t *testing.T) {
	t.Parallel()
	e := openStrict(t)
	e.work()
	id := e.asked(askedBody)
	if a := e.post("/v1/approvals/"+id+"/decide", `{"approved":false,"reason":"not on a Friday"}`); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r := decode[schemas.Result](t, e.get("/v1/calls/x"))
	if r.Status != schemas.StatusDenied || r.Text != "denied by a person: not on a Friday" || r.Error.Code != schemas.Denied {
		t.Errorf("%+v", r)
	}
	id = e.asked(strings.Replace(askedBody, `"x"`, `"y"`, 1))
	if a := e.post("/v1/calls/y/cancel", `{"reason":"never mind"}`); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if r := decode[schemas.Result](t, e.get("/v1/calls/y")); r.Status != schemas.StatusCancelled || !strings.Contains(r.Text, "never mind") {
		t.Errorf("%+v", r)
	}
	if a := e.get("/v1/approvals/" + id); decode[schemas.Approval](t, a).State != schemas.ApprovalCancelled {
		t.Errorf("%s", a.body)
	}
	if a := e.post("/v1/calls/y/cancel", ""); a.status != http.StatusConflict {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestApprovalsRefuseWhatIsWrong(t *testing.T) {
	t.Parallel()
	e := openStrict(t)
	id := e.asked(askedBody)
	for _, c := range []struct {
		method, path, body, field string
		status                    int
	}{
		{"POST", id + "/decide", `{}`, "approved", 400},
		{"POST", id + "/decide", `{"approved":null}`, "approved", 400},
		{"POST", id + "/decide", `{"approved":"yes"}`, "approved", 400},
		{"POST", id + "/decide", `{"approved":true,"aproved":true}`, "aproved", 400},
		{"POST", id + "/decide", `[]`, "", 400},
		{"POST", id + "/decide", ``, "", 400},
		{"POST", id + "/decide", `{"approved":true,"reason":"` + strings.Repeat("x", 1025) + `"}`, "reason", 400},
		{"POST", id + "/decide?force=1", `{"approved":true}`, "force", 400},
		{"POST", "appr_none/decide", `{"approved":true}`, "", 404},
		{"POST", "x.*/decide", `{"approved":true}`, "", 404},
		{"GET", "appr_none", ``, "", 404},
		{"GET", "%FF", ``, "", 404},
		{"GET", "?state=maybe", ``, "state", 400},
		{"GET", "?limit=101", ``, "limit", 400},
		{"GET", "?conversation=%20", ``, "conversation", 400},
		{"DELETE", id, ``, "", 405},
	} {
		path := "/v1/approvals/" + c.path
		if strings.HasPrefix(c.path, "?") {
			path = "/v1/approvals" + c.path
		}
		a := e.do(ask{method: c.method, path: path, body: c.body})
		if p := a.problem(t); a.status != c.status || p.Field != c.field {
			t.Errorf("%s %s %.40s: %d %s, want %d about %q", c.method, c.path, c.body, a.status, a.body, c.status, c.field)
		}
	}
	// Another account's approval is not there, in the words of one that never was.
	for method, path := range map[string]string{http.MethodGet: "", http.MethodPost: "/decide"} {
		foreign := e.do(ask{method: method, path: "/v1/approvals/" + id + path, body: `{"approved":true}`, key: bobKey})
		never := e.do(ask{method: method, path: "/v1/approvals/appr_never" + path, body: `{"approved":true}`, key: bobKey})
		if foreign.status != http.StatusNotFound || strings.Replace(foreign.body, id, "appr_never", 1) != never.body {
			t.Errorf("%s: %s\n%s", method, foreign.body, never.body)
		}
	}
	if a := e.do(ask{method: http.MethodGet, path: "/v1/approvals", key: bobKey}); a.body != `{"approvals":[],"more":false}` {
		t.Errorf("bob sees %s", a.body)
	}
	if a := e.get("/v1/approvals/" + id); decode[schemas.Approval](t, a).State != schemas.ApprovalPending {
		t.Errorf("%s", a.body)
	}
}

func TestApprovalsAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	e := openStrict(t)
	var ids []schemas.ApprovalID
	for n := range 4 {
		ids = append(ids, schemas.ApprovalID(e.asked(strings.Replace(askedBody, `"x"`, fmt.Sprintf(`"x%d"`, n), 1))))
		time.Sleep(2 * time.Millisecond) // ids sort by the millisecond
	}
	slices.Reverse(ids)
	list := decode[admission.ApprovalList](t, e.get("/v1/approvals?limit=3"))
	var have []schemas.ApprovalID
	for _, a := range list.Approvals {
		have = append(have, a.ID)
	}
	if !slices.Equal(have, ids[:3]) || !list.More {
		t.Errorf("%v, more %v; want the first of %v", have, list.More, ids)
	}
}

func TestALargeInputIsShownWhole(t *testing.T) {
	t.Parallel()
	e := openStrict(t)
	command := "echo " + strings.Repeat("x", 100<<10)
	id := e.asked(strings.Replace(askedBody, "echo hi", command, 1))
	if a := e.get("/v1/approvals/" + id); !strings.Contains(a.body, command) {
		t.Errorf("%d bytes", len(a.body))
	}
	if a := e.get("/v1/approvals"); strings.Contains(a.body, command) || !strings.Contains(a.body, `"input":null`) {
		t.Errorf("%d bytes", len(a.body))
	}
}

func TestApprovalsOverAWebSocket(t *testing.T) {
	t.Parallel()
	e := openStrict(t)
	e.work()
	s := e.socket()
	type opFrame struct {
		Op, Status, Approval, Call string
		ID                         int64
		Error                      *schemas.Error
	}
	next := func() (f opFrame) {
		t.Helper()
		if err := s.c.ReadJSON(&f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	s.write(`{"op":"send","id":1,"request":` + askedBody + `}`)
	f := next()
	if f.Op != "accepted" || f.Status != "awaiting_approval" || f.Approval == "" {
		t.Fatalf("%+v", f)
	}
	id := f.Approval
	for frame, field := range map[string]string{
		`{"op":"approve","id":2,"approved":true}`:                                    "approval",
		`{"op":"approve","id":2,"approval":"` + id + `"}`:                            "approved",
		`{"op":"approve","id":2,"approval":"` + id + `","approved":1}`:               "approved",
		`{"op":"approve","id":2,"approval":"` + id + `","approved":true,"call":"x"}`: "call",
		`{"op":"ping","id":2,"approved":true}`:                                       "approved",
	} {
		s.write(frame)
		if f := next(); f.Op != "error" || f.ID != 2 || f.Error.Field != field {
			t.Errorf("%s: %+v", frame, f)
		}
	}
	s.write(`{"op":"approve","id":3,"approval":"` + id + `","approved":true,"reason":"ok"}`)
	if f := next(); f.Op != "decided" || f.ID != 3 || f.Status != "approved" || f.Approval != id || f.Call != "x" {
		t.Errorf("%+v", f)
	}
	s.write(`{"op":"approve","id":4,"approval":"` + id + `","approved":false}`)
	if f := next(); f.Op != "error" || f.Error.Code != schemas.Conflict || f.Approval != id {
		t.Errorf("%+v", f)
	}
	if r := decode[schemas.Result](t, e.get("/v1/calls/x?wait=60")); r.Text != "hi" {
		t.Errorf("%+v", r)
	}
	if a := decode[schemas.Approval](t, e.get("/v1/approvals/"+id)); a.DecidedBy != "websocket" {
		t.Errorf("%+v", a)
	}
}

func TestApprovalsOverNATS(t *testing.T) {
	t.Parallel()
	e := openStrict(t)
	log := e.bus
	e.background((&natsapi.Service{Bus: log, Records: strict{}, DefaultAccount: alice}).Run)
	e.background((&natsapi.IntakeConsumer{Bus: log, Records: strict{}}).Run)
	nc := e.tenant()
	var a natsapi.Answer
	if err := json.Unmarshal(nc.Request(t, natsapi.SubjectRPC+"."+string(alice), askedBody), &a); err != nil ||
		a.Status != "awaiting_approval" || a.Approval == "" {
		t.Errorf("the front door: %+v, %v", a, err)
	}
	inbox := nc.Inbox(t)
	nc.Publish(t, "sandjet.calls.auto."+string(alice), map[string]string{natsapi.HeaderReply: inbox.Subject}, askedBody)
	var b natsapi.Answer
	if err := json.Unmarshal(inbox.Next(t), &b); err != nil || b != a {
		t.Errorf("the intake: %+v, %v; the front door said %+v", b, err, a)
	}
}

// Who speaks NATS alone finds the question and answers it, by the rules of the other doors.
func TestApprovalsAreDecidedOverNATS(t *testing.T) {
	t.Parallel()
	e := openStrict(t)
	e.background((&natsapi.Service{Bus: e.bus, Records: strict{}, DefaultAccount: alice}).Run)
	nc := e.tenant()
	type answer struct {
		Approval  schemas.Approval
		Approvals []schemas.Approval
		More      bool
		Error     *schemas.Error
	}
	ask := func(subject, body string) (a answer) {
		t.Helper()
		if err := json.Unmarshal(nc.Request(t, subject, body), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	const own = natsapi.SubjectApprovals + "." + string(alice)
	if a := ask(own, `{"op":"list"}`); a.Error != nil || a.Approvals == nil || len(a.Approvals) != 0 {
		t.Errorf("of nothing: %+v", a)
	}
	id := e.asked(askedBody)
	for _, subject := range []string{own, natsapi.SubjectApprovals} { // the server puts the account in
		if a := ask(subject, `{"op":"list","state":"pending","limit":5}`); a.Error != nil || len(a.Approvals) != 1 ||
			string(a.Approvals[0].ID) != id || a.More {
			t.Errorf("%s: %+v", subject, a)
		}
	}
	show := `{"op":"show","approval":"` + id + `"}`
	over := decode[schemas.Approval](t, e.get("/v1/approvals/"+id))
	if a := ask(own, show); a.Error != nil || a.Approval.State != schemas.ApprovalPending ||
		!bytes.Equal(a.Approval.Call.Input, over.Call.Input) {
		t.Errorf("%+v; over HTTP %+v", a, over)
	}
	for body, field := range map[string]string{
		`{}`: "op", `{"op":"decide"}`: "op", `{"op":"show"}`: "approval", `{"op":"approve","approval":"` + id + `"}`: "approved",
		`{"op":"list","approval":"` + id + `"}`: "approval",
		`{"op":"list","state":"new"}`:           "state", `{"op":"list","limit":101}`: "limit",
		`{"op":"list","conversation":"a\u0000"}`: "conversation", `{"op":"show","appr":"x"}`: "appr",
		`{"op":"approve","approval":"` + id + `","approved":false,"remember":"conversation"}`: "remember", `x`: "",
	} {
		if a := ask(own, body); a.Error == nil || a.Error.Code != schemas.Invalid || a.Error.Field != field {
			t.Errorf("%s: %+v", body, a.Error)
		}
	}
	if a := ask(own, `{"op":"list","conversation":"other"}`); a.Error != nil || len(a.Approvals) != 0 {
		t.Errorf("of another conversation: %+v", a)
	}
	if a := ask(own, `{"op":"approve","approval":"appr_none","approved":true}`); a.Error == nil || a.Error.Code != schemas.NotFound {
		t.Errorf("of none: %+v", a)
	}
	e.work()
	approve := `{"op":"approve","approval":"` + id + `","approved":true,"reason":"fine","remember":"conversation"}`
	if a := ask(own, approve); a.Error != nil || a.Approval.State != schemas.ApprovalApproved ||
		a.Approval.DecidedBy != "nats" || a.Approval.Reason != "fine" {
		t.Errorf("%+v", a)
	}
	for _, again := range []string{approve, `{"op":"approve","approval":"` + id + `","approved":false}`} {
		if a := ask(own, again); a.Error == nil || a.Error.Code != schemas.Conflict || !strings.Contains(a.Error.Message, "approved already") {
			t.Errorf("%s: %+v", again, a)
		}
	}
	if r := decode[schemas.Result](t, e.get("/v1/calls/x?wait=60")); r.Text != "hi" {
		t.Errorf("%+v", r)
	}
	if m := decode[approvals.GrantList](t, e.get("/v1/approvals/grants")); len(m.Grants) != 1 || m.Grants[0].DecidedBy != "nats" {
		t.Errorf("%+v", m)
	}
}

// What is too much for one message is left out, and the answer says so.
func TestApprovalsOverNATSFitIntoAMessage(t *testing.T) {
	t.Parallel()
	e := openStrict(t)
	e.background((&natsapi.Service{Bus: e.bus, Records: strict{}, DefaultAccount: alice}).Run)
	nc := e.tenant()
	const many, size, whole = 20, 60 << 10, 1020 << 10 // of many, each is in its record, and together they are more than a message
	for n := range many {
		e.asked(fmt.Sprintf(`{"id":"n%d","conversation":"c","tool":"bash","input":{"command":"true %s"}}`, n, strings.Repeat("x", size)))
	}
	large := e.asked(`{"id":"large","conversation":"d","tool":"bash","input":{"command":"true ` + strings.Repeat("x", whole) + `"}}`)
	var list struct {
		Approvals []schemas.Approval
		More      bool
	}
	err := json.Unmarshal(nc.Request(t, natsapi.SubjectApprovals, `{"op":"list","conversation":"c","limit":100}`), &list)
	if n := len(list.Approvals); err != nil || !list.More || n < many/2 || n >= many || len(list.Approvals[n-1].Call.Input) < size {
		t.Errorf("%d, more: %v, %v", n, list.More, err)
	}
	var one struct{ Approval schemas.Approval }
	err = json.Unmarshal(nc.Request(t, natsapi.SubjectApprovals, `{"op":"show","approval":"`+large+`"}`), &one)
	if a := one.Approval; err != nil || string(a.ID) != large || a.InputSize < whole || len(a.Call.Input) > len("null") {
		t.Errorf("%s with %d bytes, %v", a.ID, len(a.Call.Input), err)
	}
}

// A question outlives the log's server. If the log has only partly recovered when the answer comes, the answer still counts, and the
// ApprovalExpirer does what follows.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestApprovalsOutliveTheLogsServer(t *testing.T) {
	t.Parallel()
	e := openOnDisk(t, func(o *gateway.Options) { o.Records = strict{} })
	id := e.asked(askedBody)
	if err := e.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.work()
	e.background((&maintenance.ApprovalExpirer{Bus: e.bus, Every: 50 * time.Millisecond}).Run)
	eventually(t, "the answer counts", func() bool {
		status := e.post("/v1/approvals/"+id+"/decide", `{"approved":true}`).status
		return status == http.StatusOK || status == http.StatusConflict // it had counted, and the confirmation was lost
	})
	eventually(t, "the call has its result", func() bool {
		a := e.get("/v1/calls/x?wait=1")
		return a.status == http.StatusOK && decode[schemas.Result](t, a).Text == "hi"
	})
}
