package records

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// view is a record as JSON for comparison: with names in place of ids, with defaults filled in, without empty values.
type view map[string]any

// viewOf returns the view of an existing record.
func (p *planner) viewOf(s existing) view {
	r := resourceOf(s.record, func(id string) string {
		if name, ok := p.names[id]; ok {
			return name
		}
		return id // of nothing that there is: it differs from every name
	})
	v, _ := p.viewOfResource(r) // a record of ours is always JSON
	return v
}

// viewOfResource returns the view of a manifest's resource. Codes: as [schemas.Resource.Decode].
func (p *planner) viewOfResource(r schemas.Resource) (view, error) {
	config, err := r.Decode()
	if err != nil {
		return nil, err
	}
	if c, ok := config.(schemas.SandboxConfig); ok {
		config = withDefaults(p.have.Providers, c)
	}
	v := view{"config": tidy(plain(config))}
	if r.Description != "" {
		v["description"] = r.Description
	}
	return v, nil
}

// resourceOf returns a record as a manifest's resource, with its secrets.
func resourceOf(r record, name func(id string) string) schemas.Resource {
	out := schemas.Resource{}
	var config any
	switch {
	case r.Sandbox != nil:
		out.Kind, out.Name, out.Description = schemas.KindSandbox, r.Sandbox.Name, r.Sandbox.Description
		config = sandboxSpec(*r.Sandbox).Config
	case r.Workspace != nil:
		out.Kind, out.Name, out.Description = schemas.KindWorkspace, r.Workspace.Name, r.Workspace.Description
		c := schemas.ManifestWorkspace{Storage: workspaceSpec(*r.Workspace).Config.Storage, Harness: workspaceSpec(*r.Workspace).Config.Harness}
		if id := r.Workspace.Sandbox; id != "" {
			c.Sandbox = name(string(id))
		}
		config = c
	case r.Model != nil:
		out.Kind, out.Name, out.Description = schemas.KindModel, r.Model.Name, r.Model.Description
		config = r.Model.ModelConfig
	case r.Agent != nil:
		out.Kind, out.Name, out.Description = schemas.KindAgent, r.Agent.Name, r.Agent.Description
		c := schemas.ManifestAgent{Tools: r.Agent.Tools, Skills: r.Agent.Skills, Turns: manifestTurns(r.Agent.Turns, name)}
		if id := r.Agent.Sandbox; id != "" {
			c.Sandbox = name(string(id))
		}
		for _, w := range r.Agent.Workspaces {
			v := schemas.ManifestView{Name: w.Name, Workspace: name(string(w.Workspace)), Sandbox: schemas.NameChoice{Given: w.Sandbox.Given}}
			if w.Sandbox.ID != "" {
				v.Sandbox.Name = name(string(w.Sandbox.ID))
			}
			c.Workspaces = append(c.Workspaces, v)
		}
		config = c
	}
	out.Config, _ = schemas.EncodeJSON(config) //nolint:errchkjson // its options came as JSON
	return out
}

// keeping returns the view with masked values replaced by those of the old record.
func (v view) keeping(old record) view {
	if old.Sandbox == nil {
		return v
	}
	config, _ := v["config"].(map[string]any)
	vars, _ := config["envVars"].(map[string]any)
	if len(vars) == 0 {
		return v
	}
	out, kept, inside := maps.Clone(v), maps.Clone(vars), maps.Clone(config)
	for name, value := range vars {
		if was, ok := old.Sandbox.EnvVars[name]; ok && value == schemas.MaskedSecret {
			kept[name] = was
		}
	}
	inside["envVars"] = kept
	out["config"] = inside
	return out
}

// configKey is equal for configs that differ only in the values of variables.
func configKey(v view) string {
	config, _ := v["config"].(map[string]any)
	config = maps.Clone(config)
	if vars, ok := config["envVars"].(map[string]any); ok {
		config["envVars"] = slices.Sorted(maps.Keys(vars))
	}
	b, _ := schemas.EncodeJSON(config) //nolint:errchkjson // it was JSON before
	return string(b)
}

// plain returns v as decoded JSON.
func plain(v any) any {
	b, _ := schemas.EncodeJSON(v) //nolint:errchkjson // configs came as JSON
	var out any
	_ = json.Unmarshal(b, &out) // likewise
	return out
}

// tidy removes empty lists and objects, which have no meaning. null stays: it excludes something.
func tidy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, below := range v {
			if below = tidy(below); !empty(below) {
				out[k] = below
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = tidy(v[i])
		}
		return out
	}
	return v
}

func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// changedFields lists, sorted, where two views differ. Lists are compared as a whole.
func changedFields(from, to any, path string) []schemas.FieldChange {
	before, a := from.(map[string]any)
	after, b := to.(map[string]any)
	if !a || !b {
		if reflect.DeepEqual(from, to) {
			return nil
		}
		return []schemas.FieldChange{{Path: path, From: shown(path, from), To: shown(path, to)}}
	}
	var out []schemas.FieldChange
	names := map[string]any{}
	maps.Copy(names, before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		below := strings.TrimPrefix(path+"."+name, ".")
		was, had := before[name]
		is, has := after[name]
		switch {
		case had && has:
			out = append(out, changedFields(was, is, below)...)
		case had: // field by field too: an object that goes may hold secrets
			out = append(out, leaves(was, below, func(path string, v any) schemas.FieldChange {
				return schemas.FieldChange{Path: path, From: shown(path, v)}
			})...)
		default:
			out = append(out, leaves(is, below, func(path string, v any) schemas.FieldChange {
				return schemas.FieldChange{Path: path, To: shown(path, v)}
			})...)
		}
	}
	return out
}

// leaves returns the changes for an object that exists on one side only.
func leaves(v any, path string, change func(string, any) schemas.FieldChange) []schemas.FieldChange {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return []schemas.FieldChange{change(path, v)}
	}
	var out []schemas.FieldChange
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, leaves(m[name], path+"."+name, change)...)
	}
	return out
}

// shown returns a value as it may be shown.
func shown(path string, v any) json.RawMessage {
	if strings.HasPrefix(path, "config.envVars.") {
		text, _ := v.(string)
		if _, ref := schemas.VariableRef(text); !ref {
			v = schemas.MaskedSecret
		}
	}
	b, _ := schemas.EncodeJSON(v) //nolint:errchkjson // it was JSON before
	return b
}
