package lifecycle

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// SkippedText returns the text for the model that lists files which were not stored as artifacts.
func SkippedText(skipped []schemas.SkippedArtifact) string {
	var words []string
	const most = 5
	for i, s := range skipped {
		switch {
		case s.Count > 0:
			words = append(words, fmt.Sprintf("%d more", s.Count))
		case i < most:
			words = append(words, fmt.Sprintf("%q: %s", s.Path, s.Reason))
		case i == most:
			words = append(words, fmt.Sprintf("%d others", len(skipped)-most))
		}
	}
	return "not kept as artifacts: " + strings.Join(words, "; ")
}

// JobArtifactsText returns the text for the model that lists a job's artifacts, on lines of its own; empty if there are none.
func JobArtifactsText(a schemas.JobArtifacts) string {
	var text string
	if n := len(a.Artifacts) + a.MoreArtifacts; n > 0 {
		words := make([]string, 0, n)
		for _, f := range a.Artifacts {
			words = append(words, strconv.Quote(f.Path))
		}
		if a.MoreArtifacts > 0 {
			words = append(words, fmt.Sprintf("%d more", a.MoreArtifacts))
		}
		text = "\n[kept as artifacts: " + strings.Join(words, ", ") + "]"
	}
	if len(a.SkippedArtifacts) > 0 {
		text += "\n[" + SkippedText(a.SkippedArtifacts) + "]"
	}
	return text
}
