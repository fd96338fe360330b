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
	Type        any    `json:"type"` // a name; in strict mode possibly a list of names
	Description string `json:"description"`
	Default     any    `json:"default,omitzero"`
	Enum        []any  `json:"enum,omitzero"`
	Minimum     *int   `json:"minimum,omitzero"`
	Maximum     *int   `json:"maximum,omitzero"`

	optional bool // may be omitted although it has no default
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

// Definitions returns all tools, as [DefinitionsFor] does for a sandbox that supports every action on jobs.
func Definitions(d schemas.Dialect) ([]Definition, error) {
	return DefinitionsFor(d, schemas.JobActions())
}

// DefinitionsFor returns the tools with the defaults and wording of a dialect, in the order of [schemas.Tools], for a sandbox that
// supports these actions on background jobs. Without any action there are no background jobs: bash has no flag for them, and async_status
// is omitted. The definitions have the arguments that a model should use, but not those that only tune a dialect.
func DefinitionsFor(d schemas.Dialect, actions []schemas.JobAction) ([]Definition, error) {
	return Visible(d, schemas.ToolVisibility{Tools: schemas.Tools(), Actions: actions})
}

// Visible is [DefinitionsFor] with the tools and workspaces of an agent. If it has several workspaces, every tool has the argument
// workspace, which defaults to the first.
func Visible(d schemas.Dialect, e schemas.ToolVisibility) ([]Definition, error) {
	all, actions := describe(dialect(d)), e.Actions
	if e.Bare {
		bash := all[schemas.ToolBash]
		bash.text = bashText("in a fresh sandbox without files; nothing is kept afterwards.")
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
	if write, ok := all[schemas.ToolWrite]; ok && e.Notes {
		write.text += " " + notesText
		all[schemas.ToolWrite] = write
	}
	if len(e.Skills) > 0 {
		all[schemas.ToolLoadSkill] = describeSkills(e.Skills)
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

// notesText describes where a model finds notes of earlier conversations, and leaves notes for later ones. They are ordinary files of the
// workspace, for which there is no special tool.
const notesText = "What later conversations need to know is kept in MEMORY.md at the root of the workspace, and open tasks are in " +
	"TASKS.md: read them before you begin if they are there, keep them short (8 KiB) and true, and write no secrets into them."

// input describes a tool and its arguments.
type input struct {
	text   string
	fields map[string]property
}

// bashText returns the description of bash; where says where it runs.
func bashText(where string) string {
	return fmt.Sprintf("Runs a command with bash %s Returns stdout, stderr and the exit code, and says if it timed out or was truncated: "+
		"of a stream above the sandbox's limit (by default %d KiB) the beginning and the end are shown, and where the whole output "+
		"was kept, the file with it is named. Bytes that are not UTF-8 are shown as U+FFFD and counted: to pass binary data on, "+
		"use base64 or a file.",
		where, schemas.DefaultOutputLimit>>10)
}

// describe returns the descriptions of the tools. Their limits are the constants that are enforced, so that the texts cannot differ from
// them.
func describe(d dialect) map[schemas.Tool]input {
	first, root, pattern, example := 1, "relative to the searched directory, newest first", "a regular expression (RE2 syntax)", `func \w+\(`
	path := stringOf("Path of the file: relative to the workspace, or absolute below /workspace. Other absolute paths and \"..\" are " +
		"refused, not rewritten. Example: src/main.go")
	search := "relative to the workspace, or absolute below /workspace."
	binary := "Binary files are refused with their media type and size."
	if d.deep() {
		first, root, pattern, example = 0, "absolute, in the order of their names", "literal text without special characters", "func main("
		path = stringOf("Absolute path of the file below /workspace. Folders of the system, such as /tmp and /etc, and \"..\" are refused, not " +
			"rewritten. Example: /workspace/src/main.go")
		search = "absolute, below /workspace."
		binary = fmt.Sprintf("Of binary files of up to %d KiB the structured result has the content as base64; larger ones are refused.",
			maxBinary>>10)
	}
	all := map[schemas.Tool]input{
		schemas.ToolBash: {
			bashText("in the workspace. Each call is a new shell: files stay, variables and the working directory do not."),
			map[string]property{"command": stringOf(fmt.Sprintf("The command to run, at most %d MiB. Example: go test ./... 2>&1 | tail -n 50",
				schemas.MaxCommand>>20))},
		},
		schemas.ToolRead: {
			fmt.Sprintf("Reads lines of a text file and numbers them from 1. A page holds at most %d KiB; the result says how to read the next "+
				"page. Bytes that are not UTF-8 are shown as U+FFFD and counted. %s", maxPage>>10, binary),
			map[string]property{
				"file_path": path,
				"offset":    integer(fmt.Sprintf("First line to read. The first line of the file is %d.", first), first, first),
				"limit":     integer("Maximum number of lines to read.", 1, defaultLines),
			},
		},
		schemas.ToolWrite: {
			"Writes a text file, creating parent directories. Overwrites an existing file.",
			map[string]property{"file_path": path, "content": stringOf(fmt.Sprintf("The complete content of the file: text of at most %d MiB.",
				schemas.MaxContent>>20))},
		},
		schemas.ToolEdit: {
			fmt.Sprintf("Replaces text in a file of at most %d MiB. old_string and new_string are literal, including whitespace and line breaks, "+
				"and without the line numbers that read shows. old_string must occur exactly once unless replace_all is set; otherwise "+
				"nothing is changed. Binary files are refused.", schemas.MaxEdit>>20),
			map[string]property{
				"file_path": path, "old_string": stringOf("The text to replace."), "new_string": stringOf("The replacement text."),
				"replace_all": flagOf("Replace every occurrence."),
			},
		},
		schemas.ToolGlob: {
			fmt.Sprintf("Finds files by name. Paths are %s. At most %s are shown (%d KiB of names), and how many there are. Matches names that "+
				"begin with a dot only if the pattern contains the dot.", root, grouped(mostPaths), pathsBytes>>10),
			map[string]property{
				"pattern": stringOf("Glob pattern. ** crosses directories; *, ?, [a-z] and {a,b} do not. A pattern without a slash matches names at " +
					"any depth. Example: src/**/*.{ts,tsx}"),
				"path": optionalString("Directory to search: " + search + " Default: the workspace."),
			},
		},
		schemas.ToolGrep: {
			fmt.Sprintf("Searches file contents line by line. The pattern is %s. Skips binary files, files above %d MiB and VCS directories. "+
				"Shows at most %d KiB, and %s bytes of a line.", pattern, largestFile>>20, grepBytes>>10, grouped(shownLine)),
			map[string]property{
				"pattern": stringOf("What to search for: " + pattern + ". Example: " + example),
				"path":    optionalString("File or directory to search: " + search + " Default: the workspace."),
				"glob":    optionalString("Search only files that match this glob pattern, such as *.go."),
				"output_mode": oneOf("files_with_matches lists files; content shows matching lines; count shows the number of matching lines per file.",
					schemas.GrepFiles, []schemas.GrepMode{schemas.GrepFiles, schemas.GrepContent, schemas.GrepCount}),
				"case_insensitive": flagOf("Ignore case."),
				"line_numbers":     flagOf("Show line numbers (output_mode content only)."),
				"head_limit":       integer("Maximum number of output lines, at most "+grouped(mostHead)+".", 1, defaultHead),
			},
		},
	}
	all[schemas.ToolLS] = input{
		fmt.Sprintf("Lists one directory: the type, size in bytes, modification time (UTC) and name of each entry, in the order of their names, "+
			"hidden ones too. Links are not followed. At most %s entries are shown (%d KiB), and how many more there are.", grouped(mostListed),
			listedBytes>>10),
		map[string]property{
			"path":  optionalString("Directory to list: " + search + " Default: the workspace."),
			"limit": integer("Maximum number of entries to show, at most "+grouped(mostListed)+".", 1, defaultListed),
		},
	}
	if !d.deep() {
		bash := all[schemas.ToolBash].fields
		bash["description"] = optionalString("What the command does, in a few words, for people who read along.")
		bash["timeout"] = property{
			Type: "integer", Minimum: new(1), Maximum: new(int(schemas.MaxTimeout.Milliseconds())), optional: true,
			Description: fmt.Sprintf("Time in milliseconds after which the command is killed, at most %s. Default: the sandbox's timeout.",
				grouped(schemas.MaxTimeout.Milliseconds())),
		}
	}
	return all
}

// describeStatus describes async_status with the supported actions only, in the text too: a model must not read about an action that would
// be refused.
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
