package carry

import (
	"maps"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/capture"
	"github.com/sandjet/sandjet/schemas"
)

// Paths in a sandbox.
const (
	SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	TempPath   = "/tmp"
)

// Environment returns a command's variables: only declared ones, and the reserved ones, which take precedence. Code: invalid.
func Environment(cmd providers.Command, user, home string) (map[string]string, error) {
	env := map[string]string{}
	for _, declared := range []map[string]string{cmd.Spec.Env, cmd.Env} {
		if err := boxrun.CheckEnv(declared); err != nil {
			return nil, err
		}
		maps.Copy(env, declared)
	}
	env["PATH"], env["HOME"], env["TMPDIR"], env["LANG"] = SearchPath, home, TempPath, "C.UTF-8"
	env["USER"], env["LOGNAME"] = user, user
	if strings.Contains(cmd.Script, "\x00") || strings.Contains(cmd.Dir, "\x00") {
		return nil, schemas.Invalidf("script", "NUL is not allowed")
	}
	return env, nil
}

// CheckMounts returns an error unless every namespace is one path component. Code: invalid.
func CheckMounts(mounts []providers.Mount) error {
	for _, m := range mounts {
		if ns := m.Namespace; ns == "" || ns[0] == '.' || strings.ContainsAny(ns, "/\x00") || len(ns) > 128 {
			return schemas.Invalidf("mounts", "a namespace is one path component, not %q", schemas.Quotable(ns))
		}
	}
	return nil
}

// dirOf returns the working directory of a command.
func dirOf(cmd providers.Command) string {
	switch {
	case cmd.Dir == "" && len(cmd.Mounts) > 0:
		return cmd.Mounts[0].Path()
	case cmd.Dir == "":
		return TempPath
	case cmd.Dir[0] != '/':
		return TempPath + "/" + cmd.Dir
	default:
		return cmd.Dir
	}
}

// output passes on a command's output and stores an excerpt of it.
type output struct {
	want    func(providers.Chunk)
	streams [2]*capture.Excerpt
}

func newOutput(cmd providers.Command) *output {
	limit := cmd.OutputLimit
	if limit <= 0 {
		limit = schemas.DefaultOutputLimit
	}
	return &output{want: cmd.Output, streams: [2]*capture.Excerpt{capture.NewExcerpt(limit), capture.NewExcerpt(limit)}}
}

func (o *output) take(stderr bool, data []byte) {
	kept := o.streams[0]
	if stderr {
		kept = o.streams[1]
	}
	kept.Add(data)
	if o.want != nil {
		o.want(providers.Chunk{Stderr: stderr, Data: data})
	}
}

func (o *output) fill(res *providers.Result) {
	stdout, stderr := o.streams[0], o.streams[1]
	res.Stdout, res.Stderr = stdout.Bytes(), stderr.Bytes()
	res.StdoutBytes, res.StderrBytes = stdout.Total(), stderr.Total()
	res.Truncated = stdout.Truncated() || stderr.Truncated()
}
