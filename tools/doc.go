// Package tools implements the tools of an agent: bash, read, write, edit, glob, grep and ls. async_status, which uses no sandbox, is
// implemented in package workers.
//
// [Compile] turns a call into a [Plan] without side effects: one script for one run, with the parameters and the payload on its standard
// input, so that no text of a model ever becomes part of a script (except for the command of bash, which is the script). [Plan.Render]
// turns the outcome of the run into the [schemas.Result]: text for the model, and structured data.
//
// In the box the file tools need only a POSIX shell, coreutils, find, grep and awk; grep uses ripgrep if it is there, with the same
// result. [RunNative] runs the tools in this process over a [workspacefs.FS], for providers whose files can be accessed directly. Both
// produce an answer (the facts), from which one function makes the text, and one suite (toolstest) tests both.
//
// # Common rules
//
// A file has the same names in all tools, including bash: a path is relative to the workspace, or absolute below /workspace or below the
// workspace's mount, which commands print. Other absolute paths are refused; in the dialect deepagents they are relative to the workspace,
// except where boxes have a folder of that name (/tmp, /etc). "." and "//" are ignored; "..", NUL and line breaks are refused. Symbolic
// links are followed while they stay in the workspace, absolute ones are not. Texts show relative paths, in deepagents absolute ones below
// /workspace.
//
// glob, grep and ls follow no links below their starting point, and skip names with line breaks. ls shows hidden names, and glob matches
// them only if the pattern has the dot. grep searches hidden files, but not the folders of version control (.git, .hg, .svn, .jj, .bzr)
// and .sandjet. Neither uses ignore files. A file with a NUL in its first 8 KiB is binary: read refuses it with its media type and size
// (deepagents: returns base64), grep skips it. For read, a file is also binary if its first 8 KiB are not UTF-8 and begin like a known
// format or with control characters. Other bytes that are not UTF-8 are shown as U+FFFD, and read and bash report their number.
//
// Patterns of grep are regular expressions in Go's syntax (RE2), which for all common uses is ripgrep's. The classes \d \w \s and \b are
// ASCII. There is no look-around and no back-reference, and no match extends beyond the end of a line. One difference remains: in a box,
// \B may also match between the bytes of a non-ASCII character.
package tools
