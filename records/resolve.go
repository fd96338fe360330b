package records

import (
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// DefaultName is the name of the workspace and of the sandbox that a request means when it names
// none.
const DefaultName = "default"

// resolve turns a valid request of t's account into a call, all but its digest. It is pure but for the ids
// that it makes: the same request, records and time give the same call.
func resolve(t *tenant, a schemas.AccountID, r schemas.Request, now time.Time) (schemas.Call, error) {
	r, err := r.Parsed()
	if err != nil {
		return schemas.Call{}, err
	}
	misuse := r.Misuse()
	g, s, err := placeOf(t, r)
	if err != nil && r.InputWorkspace() != "" { // the model may have written a workspace that there is not
		r = r.WithoutInputWorkspace()
		wrong := schemas.Public(err)
		var elsewhere error
		if g, s, elsewhere = placeOf(t, r); elsewhere == nil {
			misuse, err = &schemas.Error{Code: wrong.Code, Field: "input.workspace", Message: wrong.Message}, nil
		}
	}
	if err != nil {
		return schemas.Call{}, err
	}
	if r, err = r.Placed(); err != nil {
		return schemas.Call{}, err
	}
	deadline, err := deadline(r, now)
	if err != nil {
		return schemas.Call{}, err
	}
	c := schemas.Call{
		ID: r.ID, Account: a, Agent: r.Agent, Conversation: r.Conversation, Turn: r.Turn, Tool: r.Tool, Input: r.Input,
		Dialect: r.Dialect, Provider: s.provider, Workspace: s.workspace.ID, Sandbox: s.sandbox.ID, Direct: s.direct,
		Timeout: timeout(r, s.sandbox), Accepted: now.UTC(), Deadline: deadline, Origin: r.Origin, Group: r.Group, TraceParent: r.TraceParent,
		Artifacts: r.Artifacts, Misuse: misuse,
	}
	if c.ID == "" {
		c.ID = schemas.NewCallID()
	}
	if c.Conversation == "" {
		c.Conversation = schemas.NewConversationID()
	}
	c = c.WithInputOf(r)
	if misuse == nil || slices.Contains(schemas.Tools(), r.Tool) {
		c.Refused = refusal(g, s, r)
	}
	if c.Unfit() == nil && (g.Tools[r.Tool].NeedsApproval || asks(s.sandbox.PermissionMode, r.Tool)) {
		c.Approval = schemas.NewApprovalID()
	}
	return c, nil
}

// placeOf finds where a request is carried out, and the agent that it names.
func placeOf(t *tenant, r schemas.Request) (g schemas.Agent, s placement, err error) {
	if r, err = r.Placed(); err != nil {
		return g, s, err
	}
	if r.Agent == "" {
		s, err = place(t, r)
		return g, s, err
	}
	return placeOfAgent(t, r)
}

// place finds the workspace and the sandbox: the named ones, else the default workspace and the
// workspace's own sandbox.
func place(t *tenant, r schemas.Request) (s placement, err error) {
	name := r.Workspace
	if name == "" {
		name = DefaultName
	}
	var ok bool
	if s.workspace, ok = t.workspaces.find(name); !ok {
		return s, missing("workspace", name, t.workspaces.known())
	}
	name = r.Sandbox
	if name == "" {
		name = string(s.workspace.Sandbox)
	}
	if name == "" {
		return s, schemas.Invalidf("sandbox",
			"is missing, and workspace %q has no sandbox of its own: name one", schemas.Quotable(s.workspace.Name))
	}
	if s.sandbox, ok = t.sandboxes.find(name); !ok {
		return s, missing("sandbox", name, t.sandboxes.known())
	}
	s.provider = s.sandbox.Provider
	return s, t.reaches(s)
}

// reaches refuses a workspace whose files the sandbox of a call does not reach. A provider that this build does not have is refused
// elsewhere. Code: unsupported.
func (t *tenant) reaches(s placement) error {
	able, ok := t.providers.Find(s.provider)
	if !ok {
		return nil
	}
	if err := able.Reaches(s.workspace, s.sandbox); err != nil {
		p := schemas.Public(err)
		return &schemas.Error{Code: p.Code, Field: "workspace", Message: p.Field + " " + p.Message}
	}
	return nil
}

// placeOfAgent finds where the request's agent has its call carried out: in the workspace that the request
// names, or the first of the agent, and never outside of those.
func placeOfAgent(t *tenant, r schemas.Request) (g schemas.Agent, s placement, err error) {
	g, ok := t.agents.byID[r.Agent]
	if !ok {
		return g, s, missing("agent", string(r.Agent), t.agents.known())
	}
	n := 0
	if r.Workspace != "" {
		n = slices.IndexFunc(g.Workspaces, func(e schemas.AgentWorkspace) bool { return e.Name == r.Workspace })
		if n < 0 {
			n = slices.IndexFunc(g.Workspaces, func(e schemas.AgentWorkspace) bool { return string(e.Workspace) == r.Workspace })
		}
		if n < 0 {
			return g, s, schemas.Invalidf("workspace", "%q is none of agent %q: %s", schemas.Quotable(r.Workspace), g.Name, namesOf(g))
		}
	}
	if s, err = t.placementOf(g, n); err != nil {
		e := schemas.Public(err)
		return g, s, &schemas.Error{Code: e.Code, Field: "agent", Message: schemas.Quotable(g.Name) + ": " + e.Field + ": " + e.Message}
	}
	if r.Sandbox != "" && (s.sandbox.ID == "" || r.Sandbox != string(s.sandbox.ID) && r.Sandbox != s.sandbox.Name) {
		return g, s, &schemas.Error{
			Code: schemas.Denied, Field: "sandbox", Message: schemas.Quotable(r.Sandbox) + " is not where agent " + schemas.Quotable(g.Name) +
				" has its calls carried out: leave it out",
		}
	}
	return g, s, nil
}

// namesOf lists an agent's workspaces for an error message.
func namesOf(g schemas.Agent) string {
	if len(g.Workspaces) == 0 {
		return "it has none"
	}
	names := make([]string, len(g.Workspaces))
	for i, e := range g.Workspaces {
		names[i] = e.Name
	}
	return "it has " + strings.Join(names, ", ")
}

// refusal says why a call is not carried out, "" when it is.
func refusal(g schemas.Agent, s placement, r schemas.Request) string {
	if !g.Offered(r.Tool) {
		return "the tool " + string(r.Tool) + " is not enabled for this agent"
	}
	if r.Tool == schemas.ToolLoadSkill && g.ID != "" && len(g.Skills) == 0 {
		return "this agent has no skills"
	}
	if why := schemas.Refusal(r.Tool, s.workspace.ID, s.sandbox.ID); why != "" {
		return why
	}
	if s.workspace.ID == "" && r.Background() {
		return "this agent has no workspace, so no background jobs: run the command in the foreground"
	}
	return ""
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

// timeout is how long one run may take: the request's or its input's, the shorter of both, else the sandbox's, else the general one.
func timeout(r schemas.Request, s schemas.Sandbox) schemas.Duration {
	d := r.Timeout
	if own := schemas.Duration(r.InputTimeout()); own > 0 && (d <= 0 || own < d) {
		d = own
	}
	if d <= 0 {
		d = s.Timeout
	}
	if d <= 0 {
		d = schemas.Duration(schemas.DefaultTimeout)
	}
	return min(d, schemas.Duration(schemas.MaxTimeout))
}

func missing(noun, name, known string) error { return missingAt(noun, noun, name, known) }

func missingAt(field, noun, name, known string) error {
	return &schemas.Error{
		Code: schemas.NotFound, Field: field,
		Message: "there is no " + noun + " " + schemas.Quotable(name) + ": " + known,
	}
}
