// Package tools says what the tools of an agent do: bash, read, write, edit, glob, grep and ls. That of
// async_status, which looks at no sandbox, is in package workers.
//
// [Compile] turns a call into a [Plan] without touching anything: one script for one run, with the
// parameters and the payload on its standard input, so that no text of a model is ever part of a
// script (the command of bash apart, which is one). [Plan.Render] turns what came of the run into
// the [schemas.Result]: text for the model, and structure.
//
// The file tools need no more than a POSIX shell, coreutils, find, grep and awk in the box; grep uses
// ripgrep when it is there, with the same result. [RunNative] does the same in this process over a
// [workspacefs.FS], for providers whose files can be reached directly. Both ways end in an answer (the
// facts) that one function words, and one suite (toolstest) holds them together.
//
// # Common rules
//
// One file has one name, here and in bash: a path is relative to the workspace, or absolute below /workspace or
// below the workspace's mount, which is what commands print. Other absolute paths are refused; to deepagents they
// mean the workspace, but where boxes have a folder of that name (/tmp, /etc). "." and "//" mean nothing, "..",
// NUL and line breaks are refused. Symbolic links are followed while they stay in the workspace, absolute ones
// are not. Texts show relative paths, to deepagents absolute ones below /workspace.
//
// glob, grep and ls follow no links below where they begin, and skip names with line breaks. ls shows hidden names,
// glob finds them only where the pattern says the dot; grep searches hidden files but not the folders of version control
// (.git, .hg, .svn, .jj, .bzr) and .sandjet. Neither honours ignore files. A file with a NUL in its
// first 8 KiB is binary: read refuses it and says its media type and size (deepagents: base64), grep skips it.
// To read, a file is also binary if its first 8 KiB are not UTF-8 and begin like a known format or with control
// characters. Other bytes that are not UTF-8 are shown as U+FFFD, and read and bash say how many there are.
//
// Patterns of grep are regular expressions in Go's syntax (RE2): ripgrep's for all common uses. The
// classes \d \w \s and \b are ASCII; there is no look-around, no back-reference, and no match
// reaches over the end of a line. One difference remains: in a box, \B may also hold between the bytes
// of a character beyond ASCII.
package tools
