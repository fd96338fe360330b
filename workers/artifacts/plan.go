package artifacts

import (
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// Candidate is a file that may be an artifact.
type Candidate struct {
	Path string
	Info workspacefs.Info
	// Was is the digest that the content must differ from, empty where any content counts.
	Was string
}

// Plan returns the files that a call has changed, by path, from the listings before and after it. Files that cannot be artifacts are
// skipped with the reason. [schemas.MaxArtifacts] and the other limits are applied later, when files are read. It is pure.
func Plan(before, after Look) (list []Candidate, skipped []schemas.SkippedArtifact) {
	for _, place := range slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(before.Beyond), after.Beyond...)))) {
		skipped = append(skipped, schemas.SkippedArtifact{Path: place, Reason: schemas.SkipTooManyEntries})
	}
	for _, file := range slices.Sorted(maps.Keys(after.Found)) {
		now := after.Found[file]
		was, known := before.Found[file]
		changed, differs := change(before, was, known, now)
		if !changed || slices.ContainsFunc(skipped, func(s schemas.SkippedArtifact) bool {
			return s.Reason == schemas.SkipTooManyEntries && below(file, s.Path)
		}) {
			continue
		}
		if reason := refusal(file, now); reason != "" {
			s := schemas.SkippedArtifact{Path: strings.ToValidUTF8(file, "\uFFFD"), Reason: reason}
			if now.Type.IsRegular() {
				s.Size = now.Info.Size
			}
			skipped = append(skipped, s)
			continue
		}
		list = append(list, Candidate{Path: file, Info: now.Info, Was: differs})
	}
	return list, skipped
}

// change reports whether an entry is new or may have changed; it has changed only if its content differs from the digest differs.
func change(before Look, was Seen, known bool, now Seen) (changed bool, differs string) {
	switch {
	case !before.Since.IsZero():
		at := now.Info.Changed
		if at.IsZero() {
			at = now.Info.ModTime
		}
		return !at.Before(before.Since), ""
	case !known || was.Type != now.Type:
		return true, ""
	case was.Info.Same(now.Info):
		return was.Fresh && was.Sum != "", was.Sum
	case was.Info.Size == now.Info.Size:
		return true, was.Sum
	}
	return true, ""
}

// refusal returns why an entry cannot be an artifact; empty if it can.
func refusal(file string, s Seen) schemas.SkipReason {
	switch {
	case s.Type == fs.ModeSymlink:
		return schemas.SkipLink
	case s.Type != 0:
		return schemas.SkipNotRegular
	case !schemas.ArtifactName(file):
		return schemas.SkipBadName
	case s.Info.Links > 1:
		return schemas.SkipHardLink
	case s.Info.Size > schemas.MaxArtifactSize:
		return schemas.SkipTooLarge
	}
	return ""
}

func below(file, folder string) bool { return folder == "." || strings.HasPrefix(file, folder+"/") }
