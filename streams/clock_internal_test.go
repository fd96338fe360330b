package streams

import (
	"testing"
)

func FuzzParseTime(f *testing.F) {
	f.Add([]byte(`{"type":"io.nats.jetstream.api.v1.stream_info_response","ts":"2026-11-22T06:00:00.5Z"}`))
	f.Add([]byte(`{"error":{"code":404}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if at, err := parseTime(data); err == nil && at.IsZero() {
			t.Error("no time, and no error")
		}
	})
}
