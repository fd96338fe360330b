package topology

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
)

func TestUpgraded(t *testing.T) {
	row := func() jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: "CALLS", Description: "Calls.", Subjects: []string{"sandjet.calls.*.*.*"}, MaxAge: 24 * time.Hour, MaxMsgsPerSubject: 1,
			AllowDirect: true, AllowAtomicPublish: true, AllowMsgSchedules: true, Duplicates: 2 * time.Minute, MaxConsumers: 256,
			Replicas: 1, Compression: jetstream.S2Compression, Metadata: map[string]string{metaVersion: "1"},
		}
	}
	for name, tc := range map[string]struct {
		have   func(*jetstream.StreamConfig)
		change bool
		code   schemas.Code
	}{
		"the same":          {func(*jetstream.StreamConfig) {}, false, ""},
		"younger age":       {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, true, ""},
		"bytes by hand":     {func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 30 }, false, ""},
		"of a newer one":    {func(c *jetstream.StreamConfig) { c.Metadata[metaVersion] = "9"; c.MaxAge = 1 }, false, ""},
		"storage":           {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, false, schemas.Conflict},
		"retention":         {func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, false, schemas.Conflict},
		"of another system": {func(c *jetstream.StreamConfig) { c.Metadata = nil }, false, schemas.Conflict},
		"fewer copies":      {func(c *jetstream.StreamConfig) { c.Replicas = 3; c.Compression = jetstream.NoCompression }, false, ""},
		"compressed copies": {func(c *jetstream.StreamConfig) { c.Replicas = 3 }, true, ""},
		"without republish": {func(c *jetstream.StreamConfig) { c.RePublish = &jetstream.RePublish{Source: "x"} }, true, ""},
	} {
		have := row()
		tc.have(&have)
		next, change, err := upgraded(have, row(), 1)
		if change != tc.change || schemas.CodeOf(err) != tc.code {
			t.Errorf("%s: change %v, %v", name, change, err)
		}
		if next.Replicas != have.Replicas || next.Replicas > 1 && next.Compression != jetstream.NoCompression {
			t.Errorf("%s: %d copies of %d, compression %s", name, next.Replicas, have.Replicas, next.Compression)
		}
		if change && next.MaxAge != row().MaxAge {
			t.Errorf("%s: next %+v", name, next)
		}
	}
}

func TestVersionAtLeast(t *testing.T) {
	for v, want := range map[string]bool{"2.15.2": true, "v2.16.0-beta.1": true, "3.0.0": true, "2.14.9": false, "": false, "x": false} {
		if versionAtLeast(v, 2, 15) != want {
			t.Errorf("%q", v)
		}
	}
}
