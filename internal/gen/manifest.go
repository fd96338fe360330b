package main

import (
	"maps"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/sandjet/sandjet/schemas"
)

// configOf returns a zero value of the type of a kind's config.
func configOf(kind schemas.ResourceKind) any {
	return map[schemas.ResourceKind]any{
		schemas.KindSandbox: schemas.SandboxConfig{}, schemas.KindWorkspace: schemas.ManifestWorkspace{},
		schemas.KindModel: schemas.ModelConfig{}, schemas.KindAgent: schemas.ManifestAgent{},
	}[kind]
}

// configByKind adds the config of each kind of resource to the schema. All of it is in one document: editors read that from a file, and
// would have to fetch references to other documents from the network.
func configByKind(s *jsonschema.Schema, reflector *jsonschema.Reflector) {
	resource := s.Definitions[reflect.TypeFor[schemas.Resource]().Name()]
	resource.Properties.Set("config", &jsonschema.Schema{Type: "object",
		Description: "What the resource is like. Its fields differ by the kind."})
	for _, kind := range schemas.ResourceKinds() {
		config := reflector.Reflect(configOf(kind))
		maps.Copy(s.Definitions, config.Definitions)
		config.Version, config.Definitions = "", nil
		name := reflect.TypeOf(configOf(kind)).Name()
		s.Definitions[name] = config
		is, has := jsonschema.NewProperties(), jsonschema.NewProperties()
		is.Set("kind", &jsonschema.Schema{Const: string(kind)})
		has.Set("config", &jsonschema.Schema{Ref: "#/$defs/" + name})
		resource.AllOf = append(resource.AllOf, &jsonschema.Schema{
			If: &jsonschema.Schema{Properties: is, Required: []string{"kind"}}, Then: &jsonschema.Schema{Properties: has},
		})
	}
	s.Properties.Set("version", &jsonschema.Schema{Const: schemas.ManifestVersion, Description: "The form of the manifest."})
	s.Properties.Set("project", &jsonschema.Schema{
		Type: "string", Pattern: "^[A-Za-z0-9_.-]{1,128}$",
		Description: "Distinguishes the records of this manifest from those of others, such as the repository's name.",
	})
	resource.Properties.Set("name", &jsonschema.Schema{
		Type: "string", MinLength: new(uint64(1)), MaxLength: new(uint64(schemas.MaxName)),
		Description: "Unique among the resources of its kind. Others name it by this.",
	})
}

// named returns the schema of a name or null.
func named(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Description: description,
		OneOf: []*jsonschema.Schema{{Type: "string", MinLength: new(uint64(1))}, {Type: "null"}}}
}

// tools returns the schema of an agent's changes to its tools.
func tools() *jsonschema.Schema {
	one := jsonschema.NewProperties()
	one.Set("enabled", &jsonschema.Schema{Type: "boolean", Default: true, Description: "false: it is not offered, and its calls are denied."})
	one.Set("needsApproval", &jsonschema.Schema{Type: "boolean",
		Description: "A person decides where the permission mode would not ask. It never takes a question away."})
	all := jsonschema.NewProperties()
	for _, t := range schemas.Tools() {
		all.Set(string(t), &jsonschema.Schema{Type: "object", Properties: one, AdditionalProperties: jsonschema.FalseSchema})
	}
	return &jsonschema.Schema{Type: "object", Properties: all, AdditionalProperties: jsonschema.FalseSchema}
}
