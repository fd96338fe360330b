package schemas

import "time"

// Tool is the name of a tool.
type Tool string

// The tools.
const (
	ToolBash  Tool = "bash"
	ToolRead  Tool = "read"
	ToolWrite Tool = "write"
	ToolEdit  Tool = "edit"
	ToolGlob  Tool = "glob"
	ToolGrep  Tool = "grep"
	ToolLS    Tool = "ls"

	ToolLoadSkill   Tool = "load_skill"
	ToolAsyncStatus Tool = "async_status"
)

// Tools lists the tools in the order in which they are shown.
func Tools() []Tool {
	return []Tool{ToolBash, ToolRead, ToolWrite, ToolEdit, ToolGlob, ToolGrep, ToolLS, ToolLoadSkill, ToolAsyncStatus}
}

// SideEffects reports whether a second run of the same call could do harm. Such a call is started
// at most once; the others are simply run again after a crash.
func (t Tool) SideEffects() bool {
	return t != ToolRead && t != ToolGlob && t != ToolGrep && t != ToolLS && t != ToolLoadSkill && t != ToolAsyncStatus
}

// Writes reports whether a call may change files of its workspace. load_skill does, and may still be run twice.
func (t Tool) Writes() bool { return t.SideEffects() || t == ToolLoadSkill }

// LoadSkillInput is the input of load_skill.
type LoadSkillInput struct {
	Name string `json:"name" jsonschema:"minLength=1,maxLength=64" jsonschema_description:"The name of a skill of the agent; of a call without an agent, of the account."`
}

// Dialect selects the wording and the defaults of the tools. The zero value is [DialectClaude].
type Dialect string

// The dialects. Each only sets the explicit flags of the inputs below to its own defaults and
// words the text of the result.
const (
	DialectClaude     Dialect = "claude"     // 1-based lines, overwrite, regular expressions, relative paths newest first
	DialectDeepAgents Dialect = "deepagents" // 0-based lines, literal grep, absolute paths, no-op edits allowed
)

// BashInput is the input of bash. Command is run by bash in the workspace.
type BashInput struct {
	Command    string `json:"command" jsonschema:"minLength=1,maxLength=1048576" jsonschema_description:"The command, run by bash with the workspace as working directory."`
	Background bool   `json:"background,omitzero" jsonschema_description:"Run as a background job. Needs a persistent sandbox with job control."`
	// Timeout and Description are arguments that models know from Claude's own Bash: dialect claude only.
	Timeout     *int   `json:"timeout,omitzero" jsonschema:"minimum=1,maximum=600000" jsonschema_description:"Timeout of the run in milliseconds, in dialect claude. With a timeout of the call the shorter one holds. Ignored for background jobs."`
	Description string `json:"description,omitzero" jsonschema:"maxLength=1024" jsonschema_description:"What the command does, for people, in dialect claude. It changes nothing."`
}

// RunTimeout is what the input itself allows a run in the foreground, or 0 when it does not say.
func (in BashInput) RunTimeout() time.Duration {
	if in.Timeout == nil || in.Background {
		return 0
	}
	return time.Duration(*in.Timeout) * time.Millisecond
}

// ReadInput is the input of read.
type ReadInput struct {
	FilePath string `json:"file_path" jsonschema:"minLength=1,maxLength=4096" jsonschema_description:"Path in the workspace: relative, or below /workspace."`
	Offset   *int   `json:"offset,omitzero" jsonschema_description:"First line to read, counted from base. Default: the first."`
	Limit    *int   `json:"limit,omitzero" jsonschema:"minimum=0" jsonschema_description:"Most lines to read. Default 2000."`
	Base     *int   `json:"base,omitzero" jsonschema:"enum=0,enum=1" jsonschema_description:"Number of the first line: 1 (claude) or 0 (deepagents)."`
}

// WriteInput is the input of write.
type WriteInput struct {
	FilePath string    `json:"file_path" jsonschema:"minLength=1,maxLength=4096" jsonschema_description:"Path in the workspace; parents are made."`
	Content  string    `json:"content" jsonschema:"maxLength=5242880" jsonschema_description:"The whole new content."`
	Mode     WriteMode `json:"mode,omitzero" jsonschema:"enum=overwrite,enum=create,enum=append" jsonschema_description:"overwrite (default), create (fail if it exists) or append."`
	IfMatch  string    `json:"if_match,omitzero" jsonschema:"maxLength=128" jsonschema_description:"Only if the file's present etag (sha256 of its content in hex) is this."`
}

// WriteMode says what write does with a file that exists.
type WriteMode string

// The modes of write.
const (
	WriteOverwrite WriteMode = "overwrite"
	WriteCreate    WriteMode = "create"
	WriteAppend    WriteMode = "append"
)

// EditInput is the input of edit: OldString is replaced by NewString, both taken literally.
type EditInput struct {
	FilePath   string `json:"file_path" jsonschema:"minLength=1,maxLength=4096"`
	OldString  string `json:"old_string" jsonschema:"minLength=1,maxLength=5242880" jsonschema_description:"Text to replace; must occur exactly once unless replace_all."`
	NewString  string `json:"new_string" jsonschema:"maxLength=5242880"`
	ReplaceAll bool   `json:"replace_all,omitzero"`
	AllowNoop  *bool  `json:"allow_noop,omitzero" jsonschema_description:"Accept old_string equal to new_string: no (claude), yes (deepagents)."`
}

// GlobInput is the input of glob.
type GlobInput struct {
	Pattern     string   `json:"pattern" jsonschema:"minLength=1,maxLength=8192" jsonschema_description:"** crosses folders; * ? [a-z] {a,b} do not; without / it matches names at any depth."`
	Path        string   `json:"path,omitzero" jsonschema:"maxLength=4096" jsonschema_description:"Folder to search. Default: the workspace's root."`
	Absolute    *bool    `json:"absolute,omitzero" jsonschema_description:"Print paths as absolute ones, below /workspace."`
	IncludeDirs *bool    `json:"include_dirs,omitzero"`
	Sort        GlobSort `json:"sort,omitzero" jsonschema:"enum=newest,enum=name"`
}

// GlobSort is the order of glob's result.
type GlobSort string

// The orders.
const (
	SortNewest GlobSort = "newest"
	SortName   GlobSort = "name"
)

// GrepInput is the input of grep.
type GrepInput struct {
	Pattern         string   `json:"pattern" jsonschema:"minLength=1,maxLength=8192" jsonschema_description:"Regular expression (ripgrep's syntax), or literal text with fixed."`
	Path            string   `json:"path,omitzero" jsonschema:"maxLength=4096" jsonschema_description:"Folder or file to search. Default: the workspace's root."`
	Glob            string   `json:"glob,omitzero" jsonschema:"maxLength=8192" jsonschema_description:"Only files that match."`
	OutputMode      GrepMode `json:"output_mode,omitzero" jsonschema:"enum=files_with_matches,enum=content,enum=count"`
	CaseInsensitive bool     `json:"case_insensitive,omitzero"`
	LineNumbers     bool     `json:"line_numbers,omitzero" jsonschema_description:"With content: print line numbers."`
	Fixed           *bool    `json:"fixed,omitzero" jsonschema_description:"Take the pattern literally: no (claude), yes (deepagents)."`
	HeadLimit       *int     `json:"head_limit,omitzero" jsonschema:"minimum=0" jsonschema_description:"Most lines of output. Default 1000."`
}

// GrepMode is what grep prints.
type GrepMode string

// The modes of grep.
const (
	GrepFiles   GrepMode = "files_with_matches"
	GrepContent GrepMode = "content"
	GrepCount   GrepMode = "count"
)

// LSInput is the input of ls.
type LSInput struct {
	Path    string    `json:"path,omitzero" jsonschema:"maxLength=4096" jsonschema_description:"Folder to list. Default: the workspace's root."`
	Limit   *int      `json:"limit,omitzero" jsonschema:"minimum=1" jsonschema_description:"Most entries to show, at most 2000. Default 1000."`
	Missing LSMissing `json:"missing,omitzero" jsonschema:"enum=error,enum=empty" jsonschema_description:"What a folder that does not exist is: an error (default) or empty."`
}

// LSMissing says what ls makes of a folder that does not exist.
type LSMissing string

// The values.
const (
	MissingError LSMissing = "error"
	MissingEmpty LSMissing = "empty"
)
