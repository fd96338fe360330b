package filesync

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

const (
	// maxNotices is how many sentences a report has.
	maxNotices = 20
	// maxNamed is how many files one sentence names.
	maxNamed = 5
)

// Report is the result of a comparison of copy and bucket.
type Report struct {
	// Notices are sentences for the caller: what was kept beside, brought back or left out. At most maxNotices.
	Notices []string
	In      int // files that were brought in
	Out     int // files that were written to the bucket
	Removed int // files that were removed, on either side
	// Held says that the workspace is over its limits, so that nothing was brought in or written out but removals, and the use is not
	// finished: what it has changed is written out once the workspace is below them.
	Held bool
}

// collected collects notices for the report, some of which name several files.
type collected struct {
	said  []string
	kinds []string
	named map[string][]string
}

// say adds a notice.
func (c *collected) say(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

// group adds a file name to the notice of its kind.
func (c *collected) group(kind, name string) {
	if c.named == nil {
		c.named = map[string][]string{}
	}
	if c.named[kind] == nil {
		c.kinds = append(c.kinds, kind)
	}
	c.named[kind] = append(c.named[kind], name)
}

// groups returns the notices of all kinds, sorted by kind.
func (c *collected) groups() []string {
	var out []string
	slices.Sort(c.kinds)
	for _, kind := range c.kinds {
		names := c.named[kind]
		slices.Sort(names)
		shown := make([]string, 0, maxNamed)
		for _, n := range names[:min(len(names), maxNamed)] {
			shown = append(shown, schemas.Quotable(n))
		}
		more := ""
		if n := len(names) - len(shown); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		out = append(out, kind+": "+strings.Join(shown, ", ")+more)
	}
	return out
}

// bound cuts a list of notices to maxNotices.
func bound(notices []string) []string {
	if n := len(notices) - maxNotices; n > 0 {
		return append(notices[:maxNotices:maxNotices], fmt.Sprintf("%d more of these are not shown", n))
	}
	return notices
}
