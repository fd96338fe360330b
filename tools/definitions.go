package tools

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Definition describes a tool to a model.
type Definition struct {
	Name        schemas.Tool    `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"` // JSON Schema 2020-12 of the input
}

// inputSchema is the JSON Schema of a tool's input.
type inputSchema struct {
	Type       string              `json:"type"` // object
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
	Additional bool                `json:"additionalProperties"` //nolint:tagliatelle // the standard's
}

// property is the JSON Schema of one argument.
type property struct {
	Type        any    `json:"type"` // a name; in strict mode also a list of names
	Description string `json:"description"`
	Default     any    `json:"default,omitzero"`
	Enum        []any  `json:"enum,omitzero"`
	Minimum     *int   `json:"minimum,omitzero"`
	Maximum     *int   `json:"maximum,omitzero"`

	optional bool // it may be left out although it has no default
}

func stringOf(description string) property {
	return property{Type: "string", Description: description}
}

func optionalString(description string) property {
	return property{Type: "string", Description: description, optional: true}
}

func flagOf(description string) property {
	return property{Type: "boolean", Description: description, Default: false}
}

func oneOf[T ~string](description string, byDefault T, values []T) property {
	p := property{Type: "string", Description: description}
	for _, v := range values {
		p.Enum = append(p.Enum, v)
	}
	if byDefault != "" {
		p.Default = byDefault
	}
	return p
}

func integer(description string, minimum, byDefault int) property {
	return property{Type: "integer", Description: description, Minimum: new(minimum), Default: byDefault}
}

// Definitions lists all tools, as [DefinitionsFor] does for a sandbox with every action on jobs.
func Definitions(d schemas.Dialect) ([]Definition, error) {
	return DefinitionsFor(d, schemas.JobActions())
}

// DefinitionsFor lists the tools with the defaults and words of a dialect, in the order of
// [schemas.Tools], for a sandbox in which these actions on background jobs are offered. Without any
// there are no background jobs: bash lacks its flag, and async_status is left out. It holds the
// arguments that a model is to use; the flags that only tune a dialect are left out.
func DefinitionsFor(d schemas.Dialect, actions []schemas.JobAction) ([]Definition, error) {
	return Exposed(d, schemas.Exposure{Tools: schemas.Tools(), Actions: actions})
}

// Exposed is [DefinitionsFor] with the tools and workspaces of an agent. With several workspaces every tool
// has the argument workspace, of which the first is the default.
func Exposed(d schemas.Dialect, e schemas.Exposure) ([]Definition, error) {
	all, actions := describe(dialect(d)), e.Actions
	if e.Bare {
		bash := all[schemas.ToolBash]
		bash.text = strings.Replace(bash.text, "in the workspace", "in a fresh sandbox without files; nothing is kept afterwards", 1)
		all[schemas.ToolBash] = bash
	}
	if len(actions) > 0 {
		if p, ok := all[schemas.ToolBash].fields["timeout"]; ok {
			p.Description += " Ignored for background jobs."
			all[schemas.ToolBash].fields["timeout"] = p
		}
		all[schemas.ToolBash].fields["background"] = flagOf(
			"Run as a background job. Returns a statusId immediately; you will be notified when the job ends: do not poll.")
		all[schemas.ToolAsyncStatus] = describeStatus(actions)
	}
	list := make([]Definition, 0, len(all))
	for _, t := range schemas.Tools() {
		in, ok := all[t]
		if !ok || !slices.Contains(e.Tools, t) {
			continue
		}
		if len(e.Workspaces) > 0 {
			in.fields["workspace"] = oneOf("The workspace to use.", e.Workspaces[0], e.Workspaces)
		}
		schema := inputSchema{Type: "object", Properties: in.fields, Required: []string{}}
		for _, name := range slices.Sorted(maps.Keys(in.fields)) {
			if p := in.fields[name]; p.Default == nil && !p.optional {
				schema.Required = append(schema.Required, name)
			}
		}
		raw, err := json.Marshal(schema)
		if err != nil {
			return nil, fmt.Errorf("define %s: %w", t, err)
		}
		list = append(list, Definition{Name: t, Description: in.text, InputSchema: raw})
	}
	return list, nil
}

// input describes a tool and its arguments.
type input struct {
	text   string
	fields map[string]property
}

func describe(d dialect) map[schemas.Tool]input {
	first, root, pattern, path := 1, "relative to the searched directory, newest first", "a regular expression (RE2 syntax)",
		stringOf("Path of the file: relative to the workspace, or absolute below /workspace.")
	if d.deep() {
		first, root, pattern, path = 0, "absolute", "literal text without special characters", stringOf("Absolute path of the file. The workspace is /workspace.")
	}
	all := map[schemas.Tool]input{
		schemas.ToolBash: {
			"Runs a command with bash in the workspace. Returns output and exit code, and says if it timed out or was truncated.",
			map[string]property{"command": stringOf("The command to run.")},
		},
		schemas.ToolRead: {
			"Reads lines of a text file and numbers them from 1. A page holds at most 64 KiB; the result says how to read the next page.",
			map[string]property{
				"file_path": path,
				"offset":    integer(fmt.Sprintf("First line to read. The first line of the file is %d.", first), first, first),
				"limit":     integer("Maximum number of lines to read.", 1, defaultLines),
			},
		},
		schemas.ToolWrite: {
			"Writes a file, creating parent directories. Overwrites an existing file.",
			map[string]property{"file_path": path, "content": stringOf("The complete content of the file.")},
		},
		schemas.ToolEdit: {
			"Replaces text in a file. old_string and new_string are literal, including whitespace and line breaks. old_string must occur exactly once unless replace_all is set.",
			map[string]property{
				"file_path": path, "old_string": stringOf("The text to replace."), "new_string": stringOf("The replacement text."),
				"replace_all": flagOf("Replace every occurrence."),
			},
		},
		schemas.ToolGlob: {
			"Finds files by name. Paths are " + root + ". Matches names that begin with a dot only if the pattern contains the dot.",
			map[string]property{
				"pattern": stringOf("Glob pattern. ** crosses directories; *, ?, [a-z] and {a,b} do not. A pattern without a slash matches names at any depth."),
				"path":    optionalString("Directory to search. Default: the workspace."),
			},
		},
		schemas.ToolGrep: {
			"Searches file contents line by line. The pattern is " + pattern + ". Skips binary files and VCS directories.",
			map[string]property{
				"pattern": stringOf("What to search for: " + pattern + "."),
				"path":    optionalString("File or directory to search. Default: the workspace."),
				"glob":    optionalString("Search only files that match this glob pattern, such as *.go."),
				"output_mode": oneOf("files_with_matches lists files; content shows matching lines; count shows the number of matching lines per file.",
					schemas.GrepFiles, []schemas.GrepMode{schemas.GrepFiles, schemas.GrepContent, schemas.GrepCount}),
				"case_insensitive": flagOf("Ignore case."),
				"line_numbers":     flagOf("Show line numbers (output_mode content only)."),
				"head_limit":       integer("Maximum number of output lines.", 1, defaultHead),
			},
		},
	}
	if !d.deep() {
		bash := all[schemas.ToolBash].fields
		bash["description"] = optionalString("What the command does, in a few words, for people who read along.")
		bash["timeout"] = property{
			Type: "integer", Minimum: new(1), Maximum: new(int(schemas.MaxTimeout.Milliseconds())), optional: true,
			Description: "Timeout in milliseconds. Default: the sandbox's timeout.",
		}
	}
	return all
}

// describeStatus describes async_status with the actions that are offered, also in its text: a model must
// not read of an action that would be refused.
func describeStatus(actions []schemas.JobAction) input {
	does := map[schemas.JobAction]string{
		schemas.JobActionStatus: "status returns its state and, once it has ended, its result and the end of its output",
		schemas.JobActionLogs:   "logs reads its output from offset on",
		schemas.JobActionStop:   "stop ends it and all processes that it started",
		schemas.JobActionStdin:  "stdin writes data to its standard input, and closes it if eof is set",
		schemas.JobActionSignal: "signal sends it a signal",
	}
	fields := map[string]property{
		"statusId": stringOf("The statusId that the background call returned."),
		"action":   oneOf("What to do with the job.", schemas.JobActionStatus, actions),
	}
	var texts []string
	for _, a := range actions {
		texts = append(texts, does[a])
		switch a {
		case schemas.JobActionLogs:
			fields["offset"] = integer("For logs: the byte to read from; the previous result says where to continue.", 0, 0)
		case schemas.JobActionStdin:
			fields["data"] = optionalString("For stdin: the text to write.")
			fields["eof"] = flagOf("For stdin: close standard input after the text.")
		case schemas.JobActionSignal:
			signal := oneOf("For signal: the signal to send.", "", schemas.JobSignals())
			signal.optional = true
			fields["signal"] = signal
		case schemas.JobActionStatus, schemas.JobActionStop:
		}
	}
	return input{"Manages a background job: " + strings.Join(texts, "; ") + ". You will be notified when the job ends: do not poll.", fields}
}
