package live

import (
	"errors"
	"testing"

	"github.com/sandjet/sandjet/gateway/web/webtest"
	"github.com/sandjet/sandjet/schemas"
)

func TestDecodeOp(t *testing.T) {
	for _, frame := range []string{
		`{"op":"attach","id":1,"conv":"c_1"}`, `{"op":"attach","conv":"c_1","after":"now"}`, `{"op":"detach","conv":"c_1"}`,
		`{"op":"send","id":2,"request":{}}`, `{"op":"cancel","call":"x","reason":"enough"}`, `{"op":"ping"}`,
	} {
		if _, malformed, err := decodeOp([]byte(frame)); err != nil || malformed {
			t.Errorf("%s: %v", frame, err)
		}
	}
	for frame, want := range map[string]string{
		`{"id":7}`:                                       "op",
		`{"op":"jump","id":7}`:                           "op",
		`{"op":"attach","id":7}`:                         "conv",
		`{"op":"attach","id":7,"conv":"a b"}`:            "conv",
		`{"op":"attach","id":7,"conv":"c","call":"x"}`:   "call",
		`{"op":"attach","id":7,"conv":"c","after":"x"}`:  "after",
		`{"op":"detach","id":7,"conv":"c","after":"-1"}`: "after",
		`{"op":"send","id":7}`:                           "request",
		`{"op":"cancel","id":7}`:                         "call",
		`{"op":"cancel","id":7,"call":"a/b"}`:            "call",
		`{"op":"ping","id":7,"conv":"c"}`:                "conv",
		`{"op":"ping","id":7,"extra":1}`:                 "extra",
		`{"op":3,"id":7}`:                                "op",
		`{"op":"ping","id":7,"conv":["c"]}`:              "conv",
	} {
		op, malformed, err := decodeOp([]byte(frame))
		e, ok := errors.AsType[*schemas.Error](err)
		if malformed || !ok || e.Field != want {
			t.Errorf("%s: %v (malformed %v), want an error about %s", frame, err, malformed, want)
			continue
		}
		if op.ID == nil || *op.ID != 7 {
			t.Errorf("%s: the answer would not carry the id", frame)
		}
	}
	for _, frame := range []string{``, `x`, `[]`, `"x"`, `null`, `{`, `{} {}`, "{\"op\":\"\xff\"}"} {
		if _, malformed, err := decodeOp([]byte(frame)); err == nil || !malformed {
			t.Errorf("%q: %v (malformed %v), want a malformed frame", frame, err, malformed)
		}
	}
}

//guarantee:bad-input-is-answered-not-guessed
func FuzzDecodeOp(f *testing.F) {
	for _, s := range []string{`{"op":"attach","id":1,"conv":"c_1","after":"-1"}`,
		`{"op":"send","request":{"tool":"bash"}}`, `{"op":`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		op, malformed, err := decodeOp(b)
		if err != nil {
			webtest.Invalid(t, err)
			return
		}
		if malformed || op.validate() != nil || len(b) > MaxFrame {
			t.Fatalf("accepted %q as %+v", b, op)
		}
		if op.Op == opAttach {
			if schemas.ConversationID(op.Conv).Validate() != nil {
				t.Fatalf("conversation %q", op.Conv)
			}
		}
	})
}
