//go:build linux

package docker

import (
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/sandjet/sandjet/providers"
)

// A kept container belongs to a record from its first start on. Before it belongs to who makes it, and that takes seconds.
//
//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestOnlyUnstartedKeptContainersAreLeftBehind(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for state, want := range map[container.ContainerState]bool{
		container.StateCreated: true, container.StateRunning: false, container.StatePaused: false, container.StateExited: false,
		container.StateDead: false, container.StateRemoving: false, container.StateRestarting: false,
	} {
		c := container.Summary{State: state, Labels: map[string]string{labelKind: kindKept}, Created: now.Add(-endedFor - time.Second).Unix()}
		if why, err := new(containers).leftBehind(t.Context(), c, now); err != nil || (why != "") != want {
			t.Errorf("%s: %q, %v", state, why, err)
		}
		c.Created = now.Add(-endedFor).Unix()
		if why, err := new(containers).leftBehind(t.Context(), c, now); err != nil || why != "" {
			t.Errorf("%s, made just now: %q, %v", state, why, err)
		}
	}
	if got := stateOf(container.State{Status: container.StateCreated}); got != providers.BoxEnding {
		t.Errorf("one that was never started is listed as %s: it would be adopted", got)
	}
}
