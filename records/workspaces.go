package records

import (
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// workspaceOf makes the record of what a client says, once that is checked but for the sandbox.
func workspaceOf(old schemas.Workspace, spec schemas.WorkspaceSpec) (schemas.Workspace, error) {
	if err := checkNames(schemas.WorkspacePrefix, spec.Name, spec.Description); err != nil {
		return schemas.Workspace{}, err
	}
	w := old
	w.Name, w.Description, w.Storage, w.Sandbox = spec.Name, spec.Description, spec.Config.Storage.Provider, ""
	if err := checkStorageConfig(spec.Config.Storage); err != nil {
		return schemas.Workspace{}, err
	}
	w.Bucket = bucketOf(spec.Config.Storage)
	w.NoHarness = spec.Config.Harness.Enabled != nil && !*spec.Config.Harness.Enabled
	if spec.Sandbox != nil {
		w.Sandbox = *spec.Sandbox
		if err := w.Sandbox.Validate(); err != nil {
			return schemas.Workspace{}, err
		}
	}
	return w, nil
}

func workspaceSpec(w schemas.Workspace) schemas.WorkspaceSpec {
	spec := schemas.WorkspaceSpec{Name: w.Name, Description: w.Description}
	spec.Config.Storage = storageOf(w)
	if w.NoHarness {
		spec.Config.Harness.Enabled = new(false)
	}
	if w.Sandbox != "" {
		spec.Sandbox = &w.Sandbox
	}
	return spec
}

func workspaceDocument(w schemas.Workspace) schemas.WorkspaceDocument {
	spec := workspaceSpec(w)
	return schemas.WorkspaceDocument{
		ID: w.ID, Name: w.Name, Description: w.Description, Config: spec.Config, Sandbox: spec.Sandbox,
		Manifest: w.Manifest, Created: w.Created, Updated: updated(w.Created, w.Updated),
	}
}

// checkNames looks at what a record is called. A name that could be an id would be ambiguous.
func checkNames(prefix, name, description string) error {
	switch {
	case name == "":
		return schemas.Invalidf("name", "is missing")
	case len(name) > schemas.MaxName:
		return schemas.Invalidf("name", "is %d bytes long: the limit is %d", len(name), schemas.MaxName)
	case strings.HasPrefix(name, prefix):
		return schemas.Invalidf("name", "%q begins like an id: choose one without %q in front", schemas.Quotable(name), prefix)
	case strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("_.- ", r)
	}):
		return schemas.Invalidf("name", "%q has a character outside A-Z a-z 0-9 _.- and blank", schemas.Quotable(name))
	}
	return checkDescription(description)
}

func checkDescription(s string) error {
	switch {
	case len(s) > schemas.MaxDescription:
		return schemas.Invalidf("description", "is %d bytes long: the limit is %d", len(s), schemas.MaxDescription)
	case strings.IndexByte(s, 0) >= 0:
		return schemas.Invalidf("description", "has a NUL byte")
	}
	return nil
}
