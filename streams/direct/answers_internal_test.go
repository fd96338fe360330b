package direct

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
)

func FuzzGot(f *testing.F) {
	for _, s := range []string{
		`{"message":{"subject":"sandjet.durable.a.s._","seq":7,"hdrs":"TkFUUy8xLjANCkE6IEINCg0K","data":"eA==","time":"2026-01-02T03:04:05Z"}}`,
		`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`, `{"message":{"hdrs":"eA=="}}`, `{}`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := parseGot(data); err != nil && schemas.CodeOf(natserr.Coded("read", err)) == "" {
			t.Errorf("%q: %v has no code", data, err)
		}
	})
}

func FuzzCounts(f *testing.F) {
	for _, s := range []string{
		`{"total":2,"offset":0,"limit":100000,"state":{"messages":3,"subjects":{"sandjet.events.00.a.b":2,"sandjet.events.00.a.c":1}}}`,
		`{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`, `{"state":{"subjects":{"x":-1}}}`, `{}`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := parseCounts(data); err != nil && schemas.CodeOf(natserr.Coded("read", err)) == "" {
			t.Errorf("%q: %v has no code", data, err)
		}
	})
}

func FuzzParsePart(f *testing.F) {
	f.Add("", "12", "2026-11-20T12:00:00.5Z", "0", "11", []byte("x"))
	f.Add("204", "", "", "7", "3", []byte(nil))
	f.Add("404", "", "", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, status, seq, at, pending, prev string, data []byte) {
		m := &nats.Msg{Header: nats.Header{}, Data: data}
		for k, v := range map[string]string{"Status": status, "Nats-Sequence": seq, "Nats-Time-Stamp": at,
			"Nats-Num-Pending": pending, "Nats-Last-Sequence": prev} {
			if v != "" {
				m.Header.Set(k, v)
			}
		}
		if p, err := parsePart(m); err == nil && p.kind == partMessage && (status != "" || p.message.Time.IsZero() && at == "") {
			t.Errorf("status %q at %q was taken for a message: %+v", status, at, p)
		}
		if s, _, err := ParseLive(m); err == nil && s.Time.IsZero() && at == "" {
			t.Errorf("%+v without a time", s)
		}
	})
}
