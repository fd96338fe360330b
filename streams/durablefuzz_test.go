package streams

import (
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func FuzzGot(f *testing.F) {
	for _, s := range []string{
		`{"message":{"subject":"sandjet.durable.a.s._","seq":7,"hdrs":"TkFUUy8xLjANCkE6IEINCg0K","data":"eA==","time":"2026-01-02T03:04:05Z"}}`,
		`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`, `{"message":{"hdrs":"eA=="}}`, `{}`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := parseGot(data); err != nil && schemas.CodeOf(coded("read", err)) == "" {
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
		if _, _, err := parseCounts(data); err != nil && schemas.CodeOf(coded("read", err)) == "" {
			t.Errorf("%q: %v has no code", data, err)
		}
	})
}
