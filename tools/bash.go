package tools

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// bash is a compiled call of bash: the command is the script. Providers keep the script out of the workspace.
type bash struct{ dialect dialect }

func compileBash(c schemas.Call, in schemas.BashInput) (Plan, error) {
	if in.Background { // the job has the output and the time limit
		return Plan{Script: in.Command, call: c, tool: bash{dialect(c.Dialect)}}, nil
	}
	return Plan{Script: in.Command, Live: true, Timeout: time.Duration(c.Timeout), call: c, tool: bash{dialect(c.Dialect)}}, nil
}

// present is not used: the answer of bash is the command's output.
func (bash) present(answer) outcome { return outcome{} }

// text returns the output, followed by a trailer that always has the exit code, and mentions a timeout, lack of memory and truncation
// where they occurred. The trailer is last, whatever the command printed.
func (t bash) text(r providers.Result, o schemas.Output, timeout time.Duration) string {
	var b strings.Builder
	b.WriteString(o.Stdout)
	stderr := o.Stderr
	if t.dialect.deep() {
		stderr = markStderr(stderr)
	}
	if stderr != "" {
		newline(&b)
		b.WriteString(stderr)
	}
	newline(&b)
	switch {
	case !t.dialect.deep():
		fmt.Fprintf(&b, "[exit code %d]", r.ExitCode)
	case o.OK:
		fmt.Fprintf(&b, "[Command succeeded with exit code %d]", r.ExitCode)
	default:
		fmt.Fprintf(&b, "[Command failed with exit code %d]", r.ExitCode)
	}
	if r.TimedOut {
		b.WriteString("\n" + timedOut(timeout))
	}
	if r.OOMKilled {
		b.WriteString("\n[killed: out of memory]")
	}
	b.WriteString(notText(r))
	for _, n := range r.Notices {
		b.WriteString("\n[" + n + "]")
	}
	if !r.Truncated {
		return b.String()
	}
	if t.dialect.deep() {
		b.WriteString("\n[Output was truncated due to size limits]")
	}
	fmt.Fprintf(&b, "\n[truncated: showing the beginning and end of %d bytes of output",
		max(r.StdoutBytes+r.StderrBytes, int64(len(r.Stdout)+len(r.Stderr))))
	if o.FullOutput != "" {
		b.WriteString("; full output in " + o.FullOutput)
	}
	b.WriteString("]")
	return b.String()
}

// notText describes how many bytes of the shown output were not UTF-8. Providers cut long output between characters, so that cutting adds
// none.
func notText(r providers.Result) string {
	var counts []string
	total := int64(0)
	for i, stream := range [][]byte{r.Stdout, r.Stderr} {
		if n := schemas.InvalidBytes(stream); n > 0 {
			counts = append(counts, plural(n, "byte")+" of "+[...]string{"stdout", "stderr"}[i])
			total += n
		}
	}
	if total == 0 {
		return ""
	}
	part, were := "", "were"
	if r.Truncated {
		part = "in what is shown, "
	}
	if total == 1 {
		were = "was"
	}
	return fmt.Sprintf("\n[%s%s %s not UTF-8: shown as U+FFFD; to pass binary data on, use base64 or a file]", part,
		strings.Join(counts, " and "), were)
}

// newline ends an unfinished line.
func newline(b *strings.Builder) {
	if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
		b.WriteByte('\n')
	}
}

func markStderr(s string) string {
	if s == "" {
		return ""
	}
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return "[stderr] " + strings.Join(lines, "\n[stderr] ")
}

// timedOut returns the text about a timeout, in seconds with at most one decimal.
func timedOut(d time.Duration) string {
	seconds := math.Round(d.Seconds()*10) / 10
	return fmt.Sprintf("[timed out after %gs]", seconds)
}
