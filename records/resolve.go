package records

import (
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// DefaultName is the name of the workspace and of the sandbox that a request means when it names
// none.
const DefaultName = "default"

// resolve turns a valid request of t's account into a call. It is pure but for the ids that it
// makes: the same request, records and time give the same call.
func resolve(t *tenant, a schemas.AccountID, r schemas.Request, now time.Time) (schemas.Call, error) {
	w, s, err := place(t, r)
	if err != nil {
		return schemas.Call{}, err
	}
	deadline, err := deadline(r, now)
	if err != nil {
		return schemas.Call{}, err
	}
	c := schemas.Call{
		ID: r.ID, Account: a, Agent: r.Agent, Conversation: r.Conversation, Turn: r.Turn, Tool: r.Tool, Input: r.Input,
		Dialect: r.Dialect, Provider: s.Provider, Workspace: w.ID, Sandbox: s.ID, Timeout: timeout(r, s),
		Accepted: now.UTC(), Deadline: deadline, Origin: r.Origin, Group: r.Group, TraceParent: r.TraceParent, Digest: r.Digest(),
	}
	if c.ID == "" {
		c.ID = schemas.NewCallID()
	}
	if c.Conversation == "" {
		c.Conversation = schemas.NewConversationID()
	}
	if asks(s.PermissionMode, r.Tool) {
		c.Approval = schemas.NewApprovalID()
	}
	return c, nil
}

// place finds the workspace and the sandbox: the named ones, else the default workspace and the
// workspace's own sandbox.
func place(t *tenant, r schemas.Request) (schemas.Workspace, schemas.Sandbox, error) {
	name := r.Workspace
	if name == "" {
		name = DefaultName
	}
	w, ok := t.workspaces.find(name)
	if !ok {
		return w, schemas.Sandbox{}, missing("workspace", name, t.workspaces.known())
	}
	name = r.Sandbox
	if name == "" {
		name = string(w.Sandbox)
	}
	if name == "" {
		return w, schemas.Sandbox{}, schemas.Invalidf("sandbox",
			"is missing, and workspace %q has no sandbox of its own: name one", schemas.Quotable(w.Name))
	}
	s, ok := t.sandboxes.find(name)
	if !ok {
		return w, s, missing("sandbox", name, t.sandboxes.known())
	}
	return w, s, nil
}

// asks reports whether a call of the tool waits for a person's yes. Reading never does, nor does
// async_status, which only reaches jobs that the account has started already.
func asks(m schemas.PermissionMode, t schemas.Tool) bool {
	switch m {
	case schemas.PermissionBypass:
		return false
	case schemas.PermissionEdit:
		return t == schemas.ToolBash
	default: // ask, and whatever a later version may have written
		return t.SideEffects()
	}
}

// deadline is the call's absolute end: the request's, else an hour from now.
func deadline(r schemas.Request, now time.Time) (time.Time, error) {
	d := r.Deadline
	switch {
	case d.IsZero():
		return now.Add(schemas.DefaultDeadline).UTC(), nil
	case !d.After(now):
		return d, schemas.Invalidf("deadline", "%s has passed: it is %s now",
			d.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case d.Sub(now) > schemas.MaxDeadline:
		return d, schemas.Invalidf("deadline", "is %s away: at most %s", d.Sub(now).Round(time.Minute), schemas.MaxDeadline)
	}
	return d.UTC(), nil
}

// timeout is how long one run may take: the request's, else the sandbox's, else the general one.
func timeout(r schemas.Request, s schemas.Sandbox) schemas.Duration {
	d := r.Timeout
	if d <= 0 {
		d = s.Timeout
	}
	if d <= 0 {
		d = schemas.Duration(schemas.DefaultTimeout)
	}
	return min(d, schemas.Duration(schemas.MaxTimeout))
}

func missing(field, name, known string) error {
	return &schemas.Error{
		Code: schemas.NotFound, Field: field,
		Message: "there is no " + field + " " + schemas.Quotable(name) + ": " + known,
	}
}
