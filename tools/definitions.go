package tools

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Definition is what a model is told of a tool.
type Definition struct {
	Name        schemas.Tool    `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"` // JSON Schema 2020-12 of the input
}

// object is a JSON Schema of an object, or of one of its fields.
type object map[string]any

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
		bash.text = strings.Replace(bash.text, "in the workspace", "in a fresh box without files, of which nothing is kept", 1)
		all[schemas.ToolBash] = bash
	}
	if len(actions) > 0 {
		all[schemas.ToolBash].fields["background"] = object{
			"type": "boolean", "default": false,
			"description": "Run it as a background job: returns a statusId at once; you will be notified when it ends: do not poll.",
		}
		all[schemas.ToolAsyncStatus] = describeStatus(actions)
	}
	list := make([]Definition, 0, len(all))
	for _, t := range schemas.Tools() {
		in, ok := all[t]
		if !ok || !slices.Contains(e.Tools, t) {
			continue
		}
		if len(e.Workspaces) > 0 {
			in.fields["workspace"] = object{
				"type": "string", "enum": e.Workspaces, "default": e.Workspaces[0], "description": "The workspace that is meant.",
			}
		}
		required := []string{}
		for _, name := range slices.Sorted(maps.Keys(in.fields)) {
			if in.fields[name]["default"] == nil && !in.fields[name].optional() {
				required = append(required, name)
			}
			delete(in.fields[name], "optional")
		}
		schema, err := json.Marshal(object{
			"type": "object", "properties": in.fields, "required": required, "additionalProperties": false,
		})
		if err != nil {
			return nil, fmt.Errorf("define %s: %w", t, err)
		}
		list = append(list, Definition{Name: t, Description: in.text, InputSchema: schema})
	}
	return list, nil
}

func (o object) optional() bool { return o["optional"] != nil }

// input describes a tool's arguments.
type input struct {
	text   string
	fields map[string]object
}

func describe(d dialect) map[schemas.Tool]input {
	first, root, pattern, order := 1, "relative to the folder searched, newest first", "a regular expression", "file_path is relative to the workspace, or absolute below /workspace."
	if d.deep() {
		first, root, pattern, order = 0, "absolute", "literal text: no character has a special meaning", "file_path is absolute: the workspace is /workspace."
	}
	text := func(s string) object { return object{"type": "string", "description": s} }
	flag := func(s string) object { return object{"type": "boolean", "description": s, "default": false} }
	path := text("The file. " + order)
	folder := object{"type": "string", "description": "The folder to search. Default: the workspace.", "optional": true}
	return map[schemas.Tool]input{
		schemas.ToolBash: {
			"Runs a command with bash in the workspace. The answer holds what it printed, and always its exit code, and whether it was ended by its time or cut.",
			map[string]object{"command": text("The command.")},
		},
		schemas.ToolRead: {
			fmt.Sprintf("Reads lines of a text file, numbered from 1. A page holds at most 64 KiB; the answer says how to go on. offset counts from %d.", first),
			map[string]object{
				"file_path": path,
				"offset":    {"type": "integer", "minimum": first, "default": first, "description": fmt.Sprintf("The first line to read, counted from %d.", first)},
				"limit":     {"type": "integer", "minimum": 1, "default": defaultLines, "description": "How many lines to read at most."},
			},
		},
		schemas.ToolWrite: {
			"Writes a file, and makes its folders. A file that exists is replaced.",
			map[string]object{"file_path": path, "content": text("The whole content.")},
		},
		schemas.ToolEdit: {
			"Replaces text in a file. Both texts are taken literally, spaces and line breaks included. old_string must occur exactly once unless replace_all is set.",
			map[string]object{
				"file_path": path, "old_string": text("The text to replace."), "new_string": text("The text to put in its place."),
				"replace_all": flag("Replace every occurrence."),
			},
		},
		schemas.ToolGlob: {
			"Finds files by name. Paths are " + root + ". Names that begin with a dot are found only where the pattern has the dot.",
			map[string]object{
				"pattern": text("** crosses folders; * ? [a-z] {a,b} do not. Without a slash it matches names at any depth."), "path": folder,
			},
		},
		schemas.ToolGrep: {
			"Searches the lines of files. The pattern is " + pattern + ". Binary files and folders of version control are passed over.",
			map[string]object{
				"pattern": text("What to search: " + pattern + "."), "path": folder,
				"glob": {"type": "string", "description": "Search only files that match, such as *.go.", "optional": true},
				"output_mode": {
					"type": "string", "enum": []schemas.GrepMode{schemas.GrepFiles, schemas.GrepContent, schemas.GrepCount}, "default": schemas.GrepFiles,
					"description": "Whether to list files, lines, or how many lines each file has.",
				},
				"case_insensitive": flag("Let upper and lower case match one another."),
				"line_numbers":     flag("With content: number the lines."),
				"head_limit":       {"type": "integer", "minimum": 1, "default": defaultHead, "description": "How many lines of output at most."},
			},
		},
	}
}

// describeStatus describes async_status with what is offered, in its text too: a model must not be told
// of an action that it would be refused.
func describeStatus(actions []schemas.JobAction) input {
	does := map[schemas.JobAction]string{
		schemas.JobActionStatus: "status tells whether it runs, and how it ended with the end of its output",
		schemas.JobActionLogs:   "logs reads its output from offset on",
		schemas.JobActionStop:   "stop ends it and all that it started",
		schemas.JobActionStdin:  "stdin writes data to its standard input, and closes it with eof",
		schemas.JobActionSignal: "signal sends it a signal",
	}
	fields := map[string]object{"statusId": {"type": "string", "description": "The statusId that the background call returned."}}
	var texts []string
	for _, a := range actions {
		texts = append(texts, does[a])
		switch a {
		case schemas.JobActionLogs:
			fields["offset"] = object{"type": "integer", "minimum": 0, "default": 0, "description": "With logs: the byte to read from, as the last answer gave it."}
		case schemas.JobActionStdin:
			fields["data"] = object{"type": "string", "description": "With stdin: the text to write.", "optional": true}
			fields["eof"] = object{"type": "boolean", "default": false, "description": "With stdin: close it after the text."}
		case schemas.JobActionSignal:
			fields["signal"] = object{"type": "string", "enum": schemas.JobSignals(), "description": "With signal: which.", "optional": true}
		case schemas.JobActionStatus, schemas.JobActionStop:
		}
	}
	fields["action"] = object{"type": "string", "enum": actions, "default": schemas.JobActionStatus, "description": "What to do with the job."}
	return input{"Looks after a background job: " + strings.Join(texts, "; ") + ". You will be notified when it ends: do not poll.", fields}
}
