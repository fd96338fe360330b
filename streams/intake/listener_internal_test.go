package intake

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Whatever a publisher sends along, what is stored names an account's own subject and id, and nothing that the server acts upon.
func FuzzIntakeMessage(f *testing.F) {
	f.Add("sandjet.calls.auto.acct_1", "Nats-Msg-Id", "mine", "traceparent", "00-1")
	f.Add("sandjet.calls.auto.acct_1", "Nats-Rollup", "all", "NATS-MSG-ID", "")
	f.Add("sandjet.calls.auto.acct_1", "Nats-Expected-Stream", "INTAKE", "Sandjet-Aside", "9")
	f.Fuzz(func(t *testing.T, subject, k1, v1, k2, v2 string) {
		m := nats.NewMsg(subject)
		m.Data = []byte("{}")
		m.Header[k1] = append(m.Header[k1], v1)
		m.Header[k2] = append(m.Header[k2], v2)
		out, err := Message(m, "INTAKE")
		if err != nil {
			if schemas.CodeOf(err) != schemas.Invalid {
				t.Fatalf("code %s: %v", schemas.CodeOf(err), err)
			}
			return
		}
		a := subjects.AccountOf(subject)
		if out.Subject != subjects.WaitingSubject(a) || string(out.Data) != "{}" {
			t.Fatalf("%q becomes %q with %q", subject, out.Subject, out.Data)
		}
		for k, v := range out.Header {
			if strings.HasPrefix(strings.ToLower(k), "nats-") && (k != HeaderMsgID || len(v) != 1 || !strings.HasPrefix(v[0], string(a)+".")) {
				t.Fatalf("the header %q: %q is stored", k, v)
			}
		}
	})
}
