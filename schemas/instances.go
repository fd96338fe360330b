package schemas

import (
	"encoding/json"
	"time"
)

// Instance is the record of one reservation: what is kept between the calls of a sandbox in a workspace. It is in the bucket
// boxes under [InstanceKey] for as long as it is there, for every provider, and changed on the condition that no other process has.
// Its states and who changes them are in docs/STATES.md. It is comparable: two that are equal say the same.
type Instance struct {
	Account   AccountID     `json:"account"`
	Sandbox   SandboxID     `json:"sandbox"`
	Workspace WorkspaceID   `json:"workspace"`
	Provider  string        `json:"provider"`
	State     InstanceState `json:"state"`
	// Ref is the sandbox at the provider. It is zero while it is reserved for the first time.
	Ref Ref `json:"ref"`
	// Worker owns it, where sandboxes end with their worker: without that worker's lease it is gone. Elsewhere it is empty,
	// and any worker of the provider reaches it.
	Worker string `json:"worker,omitzero"`
	// Made is when the sandbox of Ref was first used, and Used when a call or a job was last in it; Used lags by up to a minute
	// while something is in it. All times are the log's.
	Made time.Time `json:"made"`
	Used time.Time `json:"used"`
	// Deadline is when it ends at the latest. It is written once, with Ref: what its sandbox says later counts for the
	// next one.
	Deadline time.Time `json:"deadline"`
	// Paused is since when it is paused, Pausing since when it is being paused, Ending since when it is being released.
	Paused  time.Time `json:"paused,omitzero"`
	Pausing time.Time `json:"pausing,omitzero"`
	Ending  time.Time `json:"ending,omitzero"`
	// Hooked is when its onCreate scripts had run; zero: they have not. Hooking is the worker that runs them.
	Hooked  time.Time `json:"hooked,omitzero"`
	Hooking string    `json:"hooking,omitzero"`
	// Wanted is what was requested and no worker has done yet.
	Wanted InstanceWish `json:"wanted,omitzero"`
}

// InstanceState is where an instance is on its way.
type InstanceState string

// The states of an instance. After ending its record is gone.
const (
	InstanceReserving InstanceState = "reserving" // its worker makes it for the first time
	InstanceReady     InstanceState = "ready"     // calls may enter
	InstancePausing   InstanceState = "pausing"   // nothing may enter: it is being paused
	InstancePaused    InstanceState = "paused"    // the next call wakes it
	InstanceEnding    InstanceState = "ending"    // nothing may enter: it is being released
)

// InstanceStates lists the states.
func InstanceStates() []InstanceState {
	return []InstanceState{InstanceReserving, InstanceReady, InstancePausing, InstancePaused, InstanceEnding}
}

// Validate reports whether a record may be in this state. Code: invalid.
func (s InstanceState) Validate() error { return oneOf("state", s, InstanceStates()) }

// InstanceWish is the state that was requested for an instance, and since when. The zero value requests nothing.
type InstanceWish struct {
	State InstanceTarget `json:"state"`
	At    time.Time      `json:"at"`
	// Cancelled says of a removal that the calls which were in the instance have been cancelled: workers do not wait for them.
	Cancelled bool `json:"cancelled,omitzero"`
}

// InstanceTarget is what an instance can be asked to be.
type InstanceTarget string

// The targets.
const (
	WantPaused  InstanceTarget = "paused"  // once nothing is in it
	WantRunning InstanceTarget = "running" // awake, without waiting for a call
	WantRemoved InstanceTarget = "removed" // once no call is in it; its jobs end with it
)

// InstanceTargets lists the targets.
func InstanceTargets() []InstanceTarget {
	return []InstanceTarget{WantPaused, WantRunning, WantRemoved}
}

// Validate reports whether an instance can be asked to be this. Code: invalid.
func (t InstanceTarget) Validate() error { return oneOf("wanted", t, InstanceTargets()) }

// InstanceKey is the key of an instance's record.
func InstanceKey(provider string, a AccountID, s SandboxID, w WorkspaceID) string {
	return provider + "." + BoxKey(a, s, w)
}

// BoxKey is the key under which a provider keeps the sandbox of an instance.
func BoxKey(a AccountID, s SandboxID, w WorkspaceID) string {
	return string(a) + "." + string(s) + "." + string(w)
}

// Key is the key of its record.
func (i Instance) Key() string { return InstanceKey(i.Provider, i.Account, i.Sandbox, i.Workspace) }

// UnmarshalJSON reads a record. One of the version before, which has no state, gets the state that its times say.
func (i *Instance) UnmarshalJSON(data []byte) error {
	type plain Instance
	var p plain
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	switch {
	case p.State != "":
	case !p.Ending.IsZero():
		p.State = InstanceEnding
	case p.Ref.IsZero():
		p.State = InstanceReserving
	default:
		p.State = InstanceReady
	}
	*i = Instance(p)
	return nil
}
