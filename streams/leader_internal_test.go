package streams

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestALeaderThatHearsNobodyIsNotBelieved(t *testing.T) {
	peer := func(active time.Duration, offline bool) *jetstream.PeerInfo {
		return &jetstream.PeerInfo{Active: active, Offline: offline}
	}
	for name, tc := range map[string]struct {
		cluster  *jetstream.ClusterInfo
		replicas int
		want     bool
	}{
		"no cluster": {nil, 1, true},
		"one copy":   {&jetstream.ClusterInfo{}, 1, true},
		"both":       {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(time.Second, false), peer(0, false)}}, 3, true},
		"one of two": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(time.Minute, false), peer(0, false)}}, 3, true},
		"silent": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(time.Minute, false), peer(4*time.Second, false)}},
			3, false},
		"offline":      {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(0, true), peer(0, true)}}, 3, false},
		"nobody known": {&jetstream.ClusterInfo{}, 3, false},
		"three of five": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(0, false), peer(0, false), peer(0, true), peer(0, true)}},
			5, true},
		"two of five": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(0, false), peer(0, true), peer(0, true), peer(0, true)}},
			5, false},
		"without a name": {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer(0, false)}}, 3, true},
	} {
		if got := heard(tc.cluster, tc.replicas); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
