package schemas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNewIDSortsByTime(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID(AccountPrefix)
		if seen[id] {
			t.Fatalf("%s was made twice", id)
		}
		seen[id] = true
		if err := AccountID(id).Validate(); err != nil {
			t.Fatal(err)
		}
	}
	if err := NewCallID().Validate(); err != nil {
		t.Error(err)
	}
	if err := NewConversationID().Validate(); err != nil {
		t.Error(err)
	}
}

func TestCursor(t *testing.T) {
	for text, want := range map[string]Cursor{
		"":                          {},
		"-1":                        {},
		"now":                       Tail,
		"ab12_00000000000000000007": {Epoch: "ab12", Seq: 7},
		"e_18446744073709551615":    {Epoch: "e", Seq: 1<<64 - 1},
	} {
		got, err := ParseCursor(text)
		if err != nil || got != want {
			t.Errorf("ParseCursor(%q) = %+v, %v", text, got, err)
		}
		if back, err := ParseCursor(got.String()); err != nil || back != got {
			t.Errorf("%q does not survive: %+v, %v", got.String(), back, err)
		}
	}
	for _, text := range []string{"7", "_00000000000000000007", "e_7", "e_99999999999999999999", "e_0000000000000000000x",
		"é_00000000000000000007", "e_+0000000000000000007", strings.Repeat("e", 17) + "_00000000000000000007", "NOW", "e-00000000000000000007"} {
		if got, err := ParseCursor(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseCursor(%q) = %+v, %v; want invalid", text, got, err)
		}
	}
	texts := make([]string, 0, 100)
	for n := range uint64(100) {
		texts = append(texts, Cursor{Epoch: "e", Seq: n * n * n}.String())
	}
	if !slices.IsSorted(texts) {
		t.Error("the texts of cursors do not sort as their places do")
	}
	if !Tail.IsTail() || Tail.IsStart() || !(Cursor{}).IsStart() {
		t.Error("the two ends are mixed up")
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`30`: 30 * time.Second, `1.5`: 1500 * time.Millisecond, `0`: 0, `"5m"`: 5 * time.Minute, `"0s"`: 0, `9000000000`: 9e18, `null`: 0,
	} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s is %v, %v; want %v", text, time.Duration(d), err, want)
		}
	}
	var e *Error
	if err := new(Duration).UnmarshalText([]byte("-1h")); !errors.As(err, &e) ||
		e.Message != "-1h0m0s is negative: write seconds (30) or a text such as 30s or 5m" {
		t.Errorf("-1h: %v", err)
	}
	for _, text := range []string{`-1`, `"-1s"`, `"soon"`, `""`, `"30"`, `1e10`, `1e400`, `{}`, `[]`, `true`} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s is %v, %v; want invalid", text, time.Duration(d), err)
		}
	}
}

func TestErrorsCompareByCodeAcrossAWire(t *testing.T) {
	for _, code := range Codes() {
		near := fmt.Errorf("outer: %w", Wrap(code, "op", "message", errors.New("/secret/path")))
		var far *Error
		if err := json.Unmarshal(mustJSON(Public(near)), &far); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{near, far} {
			for _, other := range Codes() {
				if got := errors.Is(err, &Error{Code: other}); got != (other == code) {
					t.Errorf("%v is %s: %v", err, other, got)
				}
			}
			if CodeOf(err) != code {
				t.Errorf("CodeOf(%v) = %s, want %s", err, CodeOf(err), code)
			}
		}
		if strings.Contains(string(mustJSON(Public(near))), "secret") {
			t.Error("the operator's cause got out")
		}
		if want := code == Exhausted || code == Unavailable; code.Retryable() != want {
			t.Errorf("%s.Retryable() = %v", code, !want)
		}
	}
	if errors.Is(Errorf(Invalid, "a"), Errorf(Invalid, "b")) {
		t.Error("two errors with messages are not the same")
	}
}

func TestErrorsKnowTheLibrarysWords(t *testing.T) {
	if !errors.Is(Errorf(Timeout, "late"), context.DeadlineExceeded) || !errors.Is(Errorf(Unsupported, "no"), errors.ErrUnsupported) {
		t.Error("a code is not recognised by the library's value")
	}
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, ""}, {errors.New("x"), Internal}, {context.DeadlineExceeded, Timeout}, {context.Canceled, Interrupted},
		{errors.ErrUnsupported, Unsupported},
		{fmt.Errorf("a: %w", ErrDenied), Denied},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("CodeOf(%v) = %q, want %q", c.err, got, c.want)
		}
	}
	for _, err := range []error{errors.New("/root/secret"), context.Canceled, context.DeadlineExceeded,
		fmt.Errorf("secret: %w", errors.ErrUnsupported)} {
		if p := Public(err); strings.Contains(p.Error(), "secret") || p.Message == "" {
			t.Errorf("Public(%v) = %v", err, p)
		}
	}
	cause := errors.New("cause")
	err := OpErrorf(Unavailable, "publish", "the log is away: %w", cause)
	if !errors.Is(err, cause) || err.Error() != "publish: the log is away: cause" { // printed once, found by errors.Is
		t.Errorf("%v", err)
	}
}

func TestEventIDsAreOnePerThing(t *testing.T) {
	a, c := AccountID("acct_1"), CallID("call_1")
	ids := []string{AcceptedID(a, c), StartedID(a, c, 1), StartedID(a, c, 2), OutputID(a, c, 1, 2), OutputID(a, c, 12, 2),
		OutputID(a, c, 1, 22), FinishedID(a, c),
		FinishedID("acct_2", c), FinishedID(a, "call_2"), JobFinishedID(a, JobID(c)), JobStartedID(a, JobID(c)),
		Cancel{Account: a, Call: c}.EventID(), exampleCall().EventID()}
	slices.Sort(ids)
	if n := len(ids); len(slices.Compact(ids)) != n {
		t.Errorf("two things share an id: %q", ids)
	}
}

//guarantee:tenants-are-isolated
func TestNamespaceIsOnePathComponentPerTenantsWorkspace(t *testing.T) {
	a, b := Namespace("acct_1", "ws_1"), Namespace("acct_2", "ws_1")
	if a == b || a == Namespace("acct_1", "ws_2") || a != Namespace("acct_1", "ws_1") || len(a) != 43 || strings.ContainsAny(a, "/.") {
		t.Errorf("%s, %s", a, b)
	}
}

func TestQuotableStaysShortAndValid(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("ü", 500), strings.Repeat("\xff", 500)} {
		if q := Quotable(s); len(q) > 70 {
			t.Errorf("%d bytes", len(q))
		}
	}
}
