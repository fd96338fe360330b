package schemas

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ManifestVersion is the one version of manifests that there is.
const ManifestVersion = 1

// Limits of manifests and of the variables that they name.
const (
	MaxManifest  = 4 << 20 // bytes of a manifest's JSON
	MaxResources = 1000    // resources of a manifest
	MaxProblems  = 500     // things that are wrong, of one answer
)

// ResourceKind says what a resource of a manifest is.
type ResourceKind string

// The kinds of resource.
const (
	KindSandbox   ResourceKind = "sandbox"
	KindWorkspace ResourceKind = "workspace"
	KindModel     ResourceKind = "model"
	KindAgent     ResourceKind = "agent"
)

// ResourceKinds lists the kinds in the order in which they may name one another: each only those before it.
func ResourceKinds() []ResourceKind {
	return []ResourceKind{KindSandbox, KindWorkspace, KindModel, KindAgent}
}

// Manifest says which records an account is to have, in the files of a project. Resources name one another by
// name: ids are the account's own.
type Manifest struct {
	Version   int        `json:"version"` // 1
	Project   string     `json:"project"` // distinguishes its records from those of other manifests
	Resources []Resource `json:"resources"`

	unread Problems // what its document had that is no part of a manifest, see [ReadManifest]
}

// Resource is one record of a manifest.
type Resource struct {
	Kind        ResourceKind `json:"kind"`
	Name        string       `json:"name"` // unique among those of its kind
	Description string       `json:"description,omitzero"`
	// Config is, by the kind, a [SandboxConfig], a [ManifestWorkspace], a [ModelConfig] or a [ManifestAgent].
	Config json.RawMessage `json:"config,omitzero"`

	spoiled bool // something of it could not be read
}

// Spoiled reports whether something of the resource could not be read, see [ReadManifest]: what is left is not all that it
// says.
func (r Resource) Spoiled() bool { return r.spoiled }

// ManifestWorkspace is the config of a workspace in a manifest.
type ManifestWorkspace struct {
	Storage StorageConfig `json:"storage,omitzero"`
	Harness HarnessConfig `json:"harness,omitzero"`
	// Sandbox is the name of the sandbox of calls that name none; empty: they must name one.
	Sandbox string `json:"sandbox,omitzero"`
}

// ManifestAgent is the config of an agent in a manifest.
type ManifestAgent struct {
	// Sandbox is the name of the sandbox where commands run that have no workspace, and those in workspaces
	// that say nothing else; empty: there is none.
	Sandbox string `json:"sandbox,omitzero"`
	// Workspaces are those that the agent sees. The first is the default.
	Workspaces []ManifestView `json:"workspaces,omitzero"`
	// Tools changes what is offered and what a person must allow; a tool that is not named is as ever.
	Tools map[Tool]ToolConfig `json:"tools,omitzero"`
	// Skills are the names of those that the model may load. They are uploaded by themselves: sandjet skills add.
	Skills []string `json:"skills,omitzero"`
	// Turns is which model is asked, and within which limits.
	Turns ManifestTurns `json:"turns,omitzero"`
}

// ManifestView is a workspace as one agent of a manifest sees it.
type ManifestView struct {
	Name      string `json:"name,omitzero"` // what the model calls it; default: the workspace's name
	Workspace string `json:"workspace"`     // its name
	// Sandbox says where commands run: left out, in the agent's sandbox, if it has one; null: nowhere, and the
	// files are only read; a name: in that one.
	Sandbox NameChoice `json:"sandbox,omitzero"`
}

// NameChoice is the name of a record that may be given, ruled out or left out. The zero value is left out.
type NameChoice struct {
	Given bool
	Name  string // empty with Given: null, there is to be none
}

// IsZero reports whether nothing was said.
func (c NameChoice) IsZero() bool { return !c.Given }

// MarshalJSON writes null or the name.
func (c NameChoice) MarshalJSON() ([]byte, error) {
	if c.Name == "" {
		return []byte("null"), nil
	}
	return json.Marshal(c.Name)
}

// UnmarshalJSON reads null or a name.
func (c *NameChoice) UnmarshalJSON(b []byte) error {
	*c = NameChoice{Given: true}
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if json.Unmarshal(b, &c.Name) != nil || c.Name == "" {
		return Invalidf("", "must be a name, or null for none")
	}
	return nil
}

// ManifestRequest asks for an account to be as a manifest says.
type ManifestRequest struct {
	Manifest Manifest `json:"manifest"`
	Prune    bool     `json:"prune,omitzero"`  // records that came from this project and are in it no more are removed
	DryRun   bool     `json:"dryRun,omitzero"` // nothing is changed; the answer says what would be
}

// ManifestAnswer says what a manifest changes.
type ManifestAnswer struct {
	// Changes are in the order in which they are made. One that changes nothing is there too.
	Changes  []ManifestChange `json:"changes"`
	Warnings ManifestWarnings `json:"warnings"`
	Applied  bool             `json:"applied"` // false: it was a dry run
}

// Differs reports whether there is anything to change.
func (a ManifestAnswer) Differs() bool {
	return slices.ContainsFunc(a.Changes, func(c ManifestChange) bool { return c.Action != ActionNone })
}

// ManifestAction is what becomes of one record.
type ManifestAction string

// The actions.
const (
	ActionCreate ManifestAction = "create"
	ActionUpdate ManifestAction = "update"
	ActionDelete ManifestAction = "delete"
	ActionRename ManifestAction = "rename" // it keeps its id, and so its files and instances
	ActionNone   ManifestAction = "none"
)

// ManifestChange is what becomes of one record.
type ManifestChange struct {
	Action ManifestAction `json:"action"`
	Kind   ResourceKind   `json:"kind"`
	Name   string         `json:"name"`
	From   string         `json:"from,omitzero"` // of rename: the name until now
	ID     string         `json:"id"`            // of create: the id that it gets
	// Adopted: the record was made by hand and belongs to the manifest from now on.
	Adopted bool          `json:"adopted,omitzero"`
	Fields  []FieldChange `json:"fields,omitzero"` // of update
}

// FieldChange is a field that gets another value. Values of variables are left out unless they only name
// one of the account.
type FieldChange struct {
	Path string          `json:"path"`          // such as config.network.mode
	From json.RawMessage `json:"from,omitzero"` // left out: there was none
	To   json.RawMessage `json:"to,omitzero"`   // left out: there is none any more
}

// ManifestWarnings are what should be looked at and is no mistake.
type ManifestWarnings struct {
	// MissingEnv are variables that the manifest names and the account does not have: calls that need one
	// fail until it is set.
	MissingEnv []string `json:"missingEnv,omitzero"`
	Notes      []string `json:"notes,omitzero"` // sentences
}

// Problems is everything that is wrong with a document, each with the field where it is.
type Problems []*Error

// Add notes an error, or each of those that it lists, its field below path.
func (p *Problems) Add(path string, err error) {
	if err == nil {
		return
	}
	e := Public(err)
	if len(e.Errors) > 0 {
		for _, each := range e.Errors {
			p.Add(path, each)
		}
		return
	}
	if len(*p) >= MaxProblems {
		return
	}
	switch {
	case e.Field == "":
		e.Field = path
	case path != "":
		e.Field = path + "." + e.Field
	}
	*p = append(*p, e)
}

// Err is nil, the one problem, or an error whose message lists the first fifty and whose Errors has all.
// Code: invalid, or that of the one.
func (p *Problems) Err() error {
	const most = 50
	all := *p
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d things are wrong:", len(all))
	for i, e := range all {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(all)-most)
			break
		}
		b.WriteString("\n  " + e.Error())
	}
	return &Error{Code: Invalid, Message: b.String(), Errors: all}
}

// DecodeManifestRequest reads a request about a manifest, which it does not check: see [ReadManifest]. Code: invalid.
func DecodeManifestRequest(b []byte) (ManifestRequest, error) {
	var in struct {
		Manifest json.RawMessage `json:"manifest"`
		Prune    bool            `json:"prune"`
		DryRun   bool            `json:"dryRun"`
	}
	if err := decodeStrict(b, bounds{MaxManifest, MaxManyMembers}, &in, ""); err != nil {
		return ManifestRequest{}, err
	}
	if len(in.Manifest) == 0 {
		return ManifestRequest{}, Invalidf("manifest", "is missing")
	}
	m, err := ReadManifest(in.Manifest)
	return ManifestRequest{Manifest: m, Prune: in.Prune, DryRun: in.DryRun}, err
}

// DecodeManifest reads a manifest and checks what can be said of it alone, as [Manifest.Check] does. Code:
// invalid, with all that is wrong; the fields are like resources[2].config.timeout.
func DecodeManifest(b []byte) (Manifest, error) {
	m, err := ReadManifest(b)
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// ReadManifest is [DecodeManifest] that does not check. What of the document is no part of a manifest, such as an unknown field, is left
// out and remembered: [Manifest.Check] reports it with the rest, so that a planner can report all errors at once. Code: invalid (the
// document as a whole cannot be read).
func ReadManifest(b []byte) (Manifest, error) {
	var in struct {
		Version   int               `json:"version"`
		Project   string            `json:"project"`
		Resources []json.RawMessage `json:"resources"`
	}
	unread := decodeAll(b, bounds{MaxManifest, MaxManyMembers}, &in)
	if len(unread) > 0 && in.Version == 0 && in.Project == "" && in.Resources == nil {
		return Manifest{}, unread.Err()
	}
	m := Manifest{Version: in.Version, Project: in.Project, Resources: make([]Resource, len(in.Resources)), unread: unread}
	for i, raw := range in.Resources {
		r := &m.Resources[i]
		for _, err := range decodeAll(raw, bounds{MaxConfig, MaxMembers}, r) {
			m.unread.Add(ResourcePath(i), err)
			r.spoiled = true
		}
		for _, err := range tidy(r) {
			m.unread.Add(ResourcePath(i), err)
			r.spoiled = true
		}
	}
	return m, nil
}

// ResourcePath is the field of a manifest where a resource is.
func ResourcePath(i int) string { return fmt.Sprintf("resources[%d]", i) }

// ResourceIndex is which resource a field of a manifest is in; -1 for none.
func ResourceIndex(field string) int {
	var i int
	if _, err := fmt.Sscanf(field, "resources[%d]", &i); err != nil {
		return -1
	}
	return i
}

// Check looks at what can be said of a manifest alone: its form, names and the form of each config. Whether
// there is what a resource names is the account's to say. Code: invalid, with all that is wrong.
func (m Manifest) Check() error {
	p := m.Problems()
	return p.Err()
}

// Problems is what [Manifest.Check] finds, and what [ReadManifest] could not read.
func (m Manifest) Problems() Problems {
	p := slices.Clone(m.unread)
	told := func(field string) bool { // it was there, and could not be read
		return slices.ContainsFunc(m.unread, func(e *Error) bool { return e.Field == field })
	}
	if m.Version != ManifestVersion && !told("version") {
		p.Add("version", Invalidf("", "%d is unknown: use %d", m.Version, ManifestVersion))
	}
	if !told("project") {
		p.Add("", checkProject(m.Project))
	}
	if len(m.Resources) > MaxResources {
		p.Add("resources", Invalidf("", "are %d: at most %d", len(m.Resources), MaxResources))
		return p
	}
	first := map[resourceName]int{}
	for i, r := range m.Resources {
		path := ResourcePath(i)
		if r.Kind != "" || !r.spoiled {
			if _, err := r.Decode(); err != nil {
				p.Add(path, err)
			}
		}
		if r.Name == "" {
			if !r.spoiled {
				p.Add(path, Invalidf("name", "is missing"))
			}
			continue
		}
		k := resourceName{r.Kind, r.Name}
		if j, twice := first[k]; twice {
			p.Add(path, Invalidf("name", "%q is the name of another %s too, at %s", Quotable(r.Name), Quotable(string(r.Kind)), ResourcePath(j)))
			continue
		}
		first[k] = i
	}
	return p
}

// resourceName identifies a resource.
type resourceName struct {
	kind ResourceKind
	name string
}

// checkProject wants a name that may stand in a query and in an id.
func checkProject(s string) error {
	switch {
	case s == "":
		return Invalidf("project", "is missing: give the manifest a name, such as the repository's")
	case len(s) > MaxName:
		return Invalidf("project", "is %d bytes long: the limit is %d", len(s), MaxName)
	case strings.IndexFunc(s, func(r rune) bool { return notAlnum(r) && !strings.ContainsRune("_.-", r) }) >= 0:
		return Invalidf("project", "%q has a character outside A-Z a-z 0-9 _.-", Quotable(s))
	}
	return nil
}

// Decode reads the config by the kind: a [SandboxConfig], a [ManifestWorkspace], a [ModelConfig] or a [ManifestAgent]. A
// variable or a model's key whose whole value is ${NAME} becomes env:NAME, and a view gets its default name. Code: invalid; the config
// is then without what could not be read.
func (r Resource) Decode() (any, error) {
	switch r.Kind {
	case KindSandbox:
		c, err := decodeConfig[SandboxConfig](r.Config)
		for name, value := range c.EnvVars {
			c.EnvVars[name] = placeholder(value)
		}
		return c, err
	case KindWorkspace:
		return decodeConfig[ManifestWorkspace](r.Config)
	case KindModel:
		c, err := decodeConfig[ModelConfig](r.Config)
		c.Key = placeholder(c.Key)
		return c, err
	case KindAgent:
		c, err := decodeConfig[ManifestAgent](r.Config)
		for i := range c.Workspaces {
			if v := &c.Workspaces[i]; v.Name == "" {
				v.Name = v.Workspace
			}
		}
		return c, err
	}
	kinds := make([]string, 0, len(ResourceKinds()))
	for _, k := range ResourceKinds() {
		kinds = append(kinds, string(k))
	}
	return nil, Invalidf("kind", "%q is unknown: use %s", Quotable(string(r.Kind)),
		cmp.Or(Nearest(string(r.Kind), kinds), strings.Join(kinds, ", ")))
}

// placeholder is env:NAME for ${NAME}, and else the value.
func placeholder(value string) string {
	ref, ok := strings.CutPrefix(value, "${")
	if name, end := strings.CutSuffix(ref, "}"); ok && end && VariableName(name) {
		return VariablePrefix + name
	}
	return value
}

func decodeConfig[T any](b json.RawMessage) (T, error) {
	var c T
	if len(b) == 0 {
		return c, nil
	}
	var p Problems
	for _, err := range decodeAll(b, bounds{MaxConfig, MaxMembers}, &c) {
		p.Add("config", err)
	}
	return c, p.Err()
}

// tidy takes out of a config what cannot be read, and returns it.
func tidy(r *Resource) Problems {
	config, err := r.Decode()
	if err == nil || config == nil {
		return nil
	}
	b, merr := json.Marshal(config)
	if merr != nil {
		return nil // its kind or its whole form is wrong: Check says so
	}
	var p Problems
	p.Add("", err)
	r.Config = b
	return p
}

// VariableName reports whether s may name a variable of an account: 1 to MaxName of A-Z a-z 0-9 _, no digit
// first.
func VariableName(s string) bool {
	return s != "" && len(s) <= MaxName && (s[0] < '0' || s[0] > '9') &&
		strings.IndexFunc(s, func(r rune) bool { return notAlnum(r) && r != '_' }) < 0
}

// VariableRef is the name of the variable of the account that a value stands for.
func VariableRef(value string) (string, bool) {
	name, ok := strings.CutPrefix(value, VariablePrefix)
	return name, ok && VariableName(name)
}
