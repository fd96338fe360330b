package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway/web/webtest"
	"github.com/sandjet/sandjet/schemas"
)

func TestEveryCodeHasItsStatus(t *testing.T) {
	want := map[schemas.Code]int{
		schemas.Invalid: 400, schemas.NotFound: 404, schemas.Conflict: 409, schemas.Denied: 403, schemas.Exhausted: 429,
		schemas.Unavailable: 503, schemas.Timeout: 504, schemas.Unsupported: 501, schemas.Interrupted: 500, schemas.Internal: 500,
	}
	for _, c := range schemas.Codes() {
		if want[c] == 0 {
			t.Errorf("code %s is not in this test's table: decide its status", c)
		}
		if got := status(c); got != want[c] {
			t.Errorf("%s: %d, want %d", c, got, want[c])
		}
	}
	if got := status("of tomorrow"); got != http.StatusInternalServerError {
		t.Errorf("an unknown code: %d", got)
	}
}

//guarantee:tenants-are-isolated
func TestProblemsShowNoCause(t *testing.T) {
	secret := errors.New("dial tcp 10.1.2.3:4222: /var/lib/secret")
	for _, err := range []error{
		secret,
		schemas.Wrap(schemas.Unavailable, "publish", "the log is away", secret),
		WithStatus(http.StatusTeapot, schemas.Wrap(schemas.Denied, "", "no", secret)),
	} {
		w := httptest.NewRecorder()
		w.Header().Set(HeaderRequestID, "req_1")
		WriteProblem(w, err)
		var p Problem
		if derr := json.Unmarshal(w.Body.Bytes(), &p); derr != nil || p.Error == nil || p.Error.Code == "" || p.Error.Message == "" {
			t.Errorf("%v: answered %s", err, w.Body)
		}
		if strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), "10.1.2.3") {
			t.Errorf("the cause is shown: %s", w.Body)
		}
	}
}

// What a route takes is named where something else is given, also when that is nothing.
func TestAnUnknownParameterIsToldWhatIsKnown(t *testing.T) {
	t.Parallel()
	for want, known := range map[string][]string{"use limit, wait": {"limit", "wait"}, "this route takes none": nil} {
		_, err := ParseQuery("x=1", known...)
		if e, ok := errors.AsType[*schemas.Error](err); !ok || e.Field != "x" || !strings.HasSuffix(e.Message, want) {
			t.Errorf("%v: %v", known, err)
		}
	}
}

func TestWait(t *testing.T) {
	for raw, want := range map[string]time.Duration{
		"": 0, "wait=": 0, "wait=0": 0, "wait=1.5": 1500 * time.Millisecond, "wait=30s": 30 * time.Second,
		"wait=1h": time.Minute, "wait=1e300": time.Minute, "wait=Inf": time.Minute,
	} {
		q, err := ParseQuery(raw, "wait")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := q.Wait(time.Minute); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", raw, got, err, want)
		}
	}
	for _, raw := range []string{"wait=-1", "wait=-1s", "wait=x", "wait=NaN", "wait=1&wait=2", "wiat=1", "wait=%zz", "wait=%ff"} {
		q, err := ParseQuery(raw, "wait")
		if err == nil {
			_, err = q.Wait(time.Minute)
		}
		if !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", raw, err)
		}
	}
}

func TestLastEventIDWinsOverAfter(t *testing.T) {
	q, err := ParseQuery("after=now", "after")
	if err != nil {
		t.Fatal(err)
	}
	const cursor = "abc_00000000000000000007"
	for header, want := range map[string]string{"": "now", cursor: cursor} {
		got, err := q.After(http.Header{"Last-Event-Id": {header}})
		if err != nil || got.String() != want {
			t.Errorf("header %q: %s, %v; want %s", header, got, err, want)
		}
	}
}

//guarantee:bad-input-is-answered-not-guessed
func FuzzQuery(f *testing.F) {
	f.Add("wait=30s&limit=5&after=-1", "")
	f.Add("after=abc_00000000000000000007", "now")
	f.Add("wait=%ff&limit=99999999999999999999", "\xff")
	f.Fuzz(func(t *testing.T, raw, last string) {
		q, err := ParseQuery(raw, "wait", "limit", "after")
		if err != nil {
			webtest.Invalid(t, err)
			return
		}
		if d, err := q.Wait(time.Minute); err != nil {
			webtest.Invalid(t, err)
		} else if d < 0 || d > time.Minute {
			t.Fatalf("wait %s", d)
		}
		if n, err := q.Limit(); err != nil {
			webtest.Invalid(t, err)
		} else if n < 1 || n > MaxPage {
			t.Fatalf("limit %d", n)
		}
		if _, err := q.After(http.Header{"Last-Event-Id": {last}}); err != nil {
			webtest.Invalid(t, err)
		}
	})
}
