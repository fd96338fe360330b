package schemas

import "time"

// Limits of the sessions of /v1/sandbox.
const (
	MaxSandboxSessionID = 64  // bytes of a session's id
	MaxSandboxSessions  = 500 // sessions of an account, those included of which only files are left

	MaxSandboxLease  = 16 << 10  // bytes of names and values of a lease
	MaxSandboxLeases = 256 << 10 // bytes of all leases of an account

	MaxCodeContexts = 16 // contexts of a sandbox, each of which is a process
)

// SandboxSession is one session of /v1/sandbox: a workspace, and the sandbox in which its calls run. Its id is the client's and
// belongs to the account; a session that is made again after its end has another workspace.
type SandboxSession struct {
	ID        string      `json:"id"`
	Workspace WorkspaceID `json:"workspace"`
	Sandbox   SandboxID   `json:"sandbox"`
	Provider  string      `json:"provider"`
	Created   time.Time   `json:"created"`
	// Used is when a request last was in it. It lags by up to [SandboxSessionLag].
	Used time.Time `json:"used"`
	// Active: it counts for the account's limit, because it has an instance or is about to have one.
	Active bool `json:"active,omitzero"`
	// Ending: it is being destroyed, and takes no more requests.
	Ending bool `json:"ending,omitzero"`
	// Destroyer has the turn to destroy it until DestroyerUntil, unless it extends that: two at once would cancel each other's calls.
	Destroyer      string    `json:"destroyer,omitzero"`
	DestroyerUntil time.Time `json:"destroyer_until,omitzero"`
	// Lease is what the session was made with as a sandbox that ends by itself. Nil: it has no such end. What it points to is never
	// changed: a change puts another in its place.
	Lease *SandboxLease `json:"lease,omitzero"`
}

// SandboxLease is what is known of a session that is a sandbox with a time of its own: it is destroyed at Expires.
type SandboxLease struct {
	Expires  time.Time         `json:"expires"`
	Template string            `json:"template"`
	Metadata map[string]string `json:"metadata,omitzero"`
	Env      map[string]string `json:"env,omitzero"` // of all its commands
	// Contexts are the kernels that it has for code.
	Contexts []CodeContext `json:"contexts,omitzero"`
}

// CodeContext is where code runs one after the other, each with what those before it have left.
type CodeContext struct {
	ID  string `json:"id"`
	Dir string `json:"dir,omitzero"` // where it began, as its client named it
	// Default: it is for code that names none.
	Default bool `json:"default,omitzero"`
	// Kernel counts the processes that it had: code that finds the last one ended begins the next.
	Kernel int `json:"kernel"`
}

// Bytes is how much the lease takes of its account's record, about.
func (l *SandboxLease) Bytes() int {
	n := len(l.Template)
	for _, c := range l.Contexts {
		n += len(c.ID) + len(c.Dir)
	}
	for _, m := range []map[string]string{l.Metadata, l.Env} {
		for k, v := range m {
			n += len(k) + len(v)
		}
	}
	return n
}

// SandboxSessionLag is how far [SandboxSession.Used] may lag behind.
const SandboxSessionLag = 30 * time.Second

// SandboxSessions are those of one account, by id. They are one record, so that a limit on their number holds at any number of
// gateways.
type SandboxSessions struct {
	Account  AccountID        `json:"account"`
	Sessions []SandboxSession `json:"sessions"`
}

// CheckSandboxSession reports whether id may name a session. Code: invalid.
func CheckSandboxSession(field, id string) error {
	return validateToken(field, id, MaxSandboxSessionID, "_.-")
}
