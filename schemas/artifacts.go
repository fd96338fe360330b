package schemas

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of artifacts. What is above one of them stays in the workspace, and the result of its call says so.
const (
	// OutputsFolder is where a call leaves what is for people, below the root of its workspace.
	OutputsFolder = "outputs"
	// MaxArtifacts is how many artifacts a call makes.
	MaxArtifacts = 20
	// MaxArtifactSize is the most bytes of one, MaxArtifactsSize of all of a call.
	MaxArtifactSize  = int64(32) << 20
	MaxArtifactsSize = int64(64) << 20
	// MaxArtifactPatterns is how many patterns a call or a sandbox may name, MaxArtifactPattern the most bytes of one.
	MaxArtifactPatterns = 16
	MaxArtifactPattern  = 512
	// MaxArtifactsSeen is how many entries of the workspace are looked at below outputs, and for all patterns together.
	MaxArtifactsSeen = 10_000
	// MaxArtifactsKept and MaxArtifactsKeptSize bound those of a conversation that are kept at the same time.
	MaxArtifactsKept     = 1000
	MaxArtifactsKeptSize = int64(1) << 30
	// MaxArtifactsSkipped is how many files a result names that are no artifacts; it counts the others.
	MaxArtifactsSkipped = 20
)

// ArtifactPrefix begins the ids of artifacts.
const ArtifactPrefix = "art_"

// ArtifactID names an artifact: "art_" and 32 hexadecimal digits, made of its call, its path and its content.
type ArtifactID string

// Validate reports whether id may name an artifact.
func (id ArtifactID) Validate() error { return validatePrefixed("id", ArtifactPrefix, string(id)) }

// ArtifactKind classifies an artifact for display.
type ArtifactKind string

// The kinds, by the media type.
const (
	KindPlot   ArtifactKind = "plot"   // a picture
	KindTable  ArtifactKind = "table"  // rows and columns
	KindReport ArtifactKind = "report" // something to read
	KindBinary ArtifactKind = "binary" // anything else
)

// ArtifactKinds lists every kind.
func ArtifactKinds() []ArtifactKind {
	return []ArtifactKind{KindPlot, KindTable, KindReport, KindBinary}
}

// Artifact is a file that a call has made or changed, as it was when the call ended. It never changes, whatever becomes of the file.
type Artifact struct {
	ID           ArtifactID     `json:"id"`
	Call         CallID         `json:"call"`
	Conversation ConversationID `json:"conversation"`
	Path         string         `json:"path"` // from the root of the call's workspace
	Name         string         `json:"name"` // the last part of the path
	MIMEType     string         `json:"mime_type"`
	Kind         ArtifactKind   `json:"kind"`
	Size         int64          `json:"size"`
	SHA256       string         `json:"sha256"` // of the content, in hexadecimal digits
	URL          string         `json:"url"`    // of the content, below that of the gateway
	Created      time.Time      `json:"created"`
}

// NewArtifact describes a file that a call has left; begin is the first part of its content.
func NewArtifact(c Call, file string, size int64, sha256 string, begin []byte, at time.Time) Artifact {
	id := ArtifactIDOf(c, file, sha256)
	media := MediaType(file, begin)
	return Artifact{
		ID: id, Call: c.ID, Conversation: c.Conversation, Path: file, Name: path.Base(file), MIMEType: media, Kind: KindOf(media),
		Size: size, SHA256: sha256, URL: "/v1/artifacts/" + string(id), Created: at.UTC(),
	}
}

// ArtifactIDOf returns the id of the file that a call has left at a path: the same however often it is computed.
func ArtifactIDOf(c Call, file, sha256 string) ArtifactID {
	parts := []string{string(c.Account), string(c.Conversation), string(c.ID), file, sha256}
	return ArtifactID(ArtifactPrefix + hashOf(parts...))
}

// hashOf hashes texts, with their boundaries, to 32 hexadecimal digits.
func hashOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p)) // never fails
	}
	const digits = 32
	return hex.EncodeToString(h.Sum(nil))[:digits]
}

// ArtifactEvent is the event about an artifact, the same in every process.
func ArtifactEvent(c Call, a Artifact) Event {
	return NewEvent(c, ArtifactCreated, string(c.Account)+"."+string(a.ID)+".created", a.Created, a)
}

// SkipReason says why a file that a call has made or changed is no artifact.
type SkipReason string

// The reasons.
const (
	SkipTooLarge         SkipReason = "too_large"          // above MaxArtifactSize
	SkipTooLargeTogether SkipReason = "too_large_together" // with the others of the call above MaxArtifactsSize
	SkipTooMany          SkipReason = "too_many"           // above MaxArtifacts; by the order of the paths
	SkipTooManyEntries   SkipReason = "too_many_entries"   // there is more to look at than MaxArtifactsSeen: nothing below the path was
	SkipNotRegular       SkipReason = "not_regular"        // a FIFO, a socket or a device
	SkipLink             SkipReason = "link"               // a symbolic link
	SkipHardLink         SkipReason = "hard_link"          // it has several names, some of which may be elsewhere
	SkipBadName          SkipReason = "bad_name"           // not UTF-8, with a line break, or too long
	SkipUnreadable       SkipReason = "unreadable"         // it could not be read
	SkipChanged          SkipReason = "changed_while_read" // something else wrote it meanwhile
	SkipConversationFull SkipReason = "conversation_full"  // above MaxArtifactsKept or MaxArtifactsKeptSize
	SkipAccountFull      SkipReason = "account_full"       // the account's quota on the log is used up
	SkipLogFull          SkipReason = "log_full"           // the log takes nothing new
	SkipNotStored        SkipReason = "not_stored"         // the log did not take it in time
	SkipTimeout          SkipReason = "timeout"            // looking took too long
	SkipUnsupported      SkipReason = "unsupported"        // the sandbox lacks a program that looking needs
	SkipNoWorker         SkipReason = "no_worker"          // no worker answered that reaches the files of a job which had ended
)

// SkipReasons lists every reason.
func SkipReasons() []SkipReason {
	return []SkipReason{
		SkipTooLarge, SkipTooLargeTogether, SkipTooMany, SkipTooManyEntries, SkipNotRegular, SkipLink, SkipHardLink, SkipBadName,
		SkipUnreadable, SkipChanged, SkipConversationFull, SkipAccountFull, SkipLogFull, SkipNotStored, SkipTimeout, SkipUnsupported,
		SkipNoWorker,
	}
}

// SkippedArtifact is a file that a call has made or changed and that is not kept. It is in the workspace as the call left it.
type SkippedArtifact struct {
	// Path leads to it; bytes that are not UTF-8 are U+FFFD. Empty: the entry stands for Count files.
	Path   string     `json:"path,omitzero"`
	Reason SkipReason `json:"reason"`
	Size   int64      `json:"size,omitzero"` // in bytes, of a file
	// Count is how many files more were left out, for several reasons, of which Reason is the first.
	Count int `json:"count,omitzero"`
}

// BoundSkipped keeps the first [MaxArtifactsSkipped] by their paths, and counts the others in an entry of their own.
func BoundSkipped(all []SkippedArtifact) []SkippedArtifact {
	slices.SortStableFunc(all, func(a, b SkippedArtifact) int { return strings.Compare(a.Path, b.Path) })
	if len(all) <= MaxArtifactsSkipped {
		return all
	}
	rest := all[MaxArtifactsSkipped:]
	return append(all[:MaxArtifactsSkipped:MaxArtifactsSkipped], SkippedArtifact{Reason: rest[0].Reason, Count: len(rest)})
}

// ArtifactName reports whether a path can be that of an artifact: it must fit into JSON and headers.
func ArtifactName(file string) bool {
	return utf8.ValidString(file) && len(file) <= MaxFilePath && !strings.ContainsFunc(file, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// ArtifactPattern is a pattern of paths relative to the root of a workspace. "*", "?" and "[a-z]" match within a name, "**" as a whole
// part matches any number of folders, and a backslash escapes. A leading dot of a name is matched only by a dot.
type ArtifactPattern struct{ parts []string }

const anyFolders = "**"

// ParseArtifactPattern reads a pattern. Code: invalid, without a field.
func ParseArtifactPattern(s string) (ArtifactPattern, error) {
	var p ArtifactPattern
	switch {
	case len(s) > MaxArtifactPattern:
		return p, Invalidf("", "has %d bytes: at most %d", len(s), MaxArtifactPattern)
	case strings.ContainsAny(s, "\x00\n\r") || !utf8.ValidString(s):
		return p, Invalidf("", "must be UTF-8 without line breaks")
	}
	for part := range strings.SplitSeq(s, "/") {
		switch _, err := path.Match(part, ""); {
		case err != nil:
			return ArtifactPattern{}, Invalidf("", "%q is no pattern: it has an open [ or ends in \\", Quotable(part))
		case part == "..":
			return ArtifactPattern{}, Invalidf("", "must not have ..: it is below the workspace")
		case part != "" && part != ".":
			p.parts = append(p.parts, part)
		}
	}
	if len(p.parts) == 0 {
		return p, Invalidf("", "must not be empty: name files, such as report.pdf or plots/*.png")
	}
	return p, nil
}

// ParseArtifactPatterns reads the patterns of a call or a sandbox. Code: invalid, with the field.
func ParseArtifactPatterns(field string, patterns []string) ([]ArtifactPattern, error) {
	if len(patterns) > MaxArtifactPatterns {
		return nil, Invalidf(field, "has %d patterns: at most %d", len(patterns), MaxArtifactPatterns)
	}
	list := make([]ArtifactPattern, len(patterns))
	for i, s := range patterns {
		var err error
		if list[i], err = ParseArtifactPattern(s); err != nil {
			return nil, Invalidf(field+"["+strconv.Itoa(i)+"]", "%s", Public(err).Message)
		}
	}
	return list, nil
}

// Reach returns where matching files can be: in a folder (the root is "."), down to depth folders below it; less than 0: any number.
func (p ArtifactPattern) Reach() (folder string, depth int) {
	n := 0
	for n < len(p.parts)-1 && !strings.ContainsAny(p.parts[n], `*?[\`) {
		n++
	}
	if depth = len(p.parts) - n - 1; slices.Contains(p.parts, anyFolders) {
		depth = -1
	}
	return path.Join(append([]string{"."}, p.parts[:n]...)...), depth
}

// Hidden reports whether names with a leading dot may match.
func (p ArtifactPattern) Hidden() bool {
	return slices.ContainsFunc(p.parts, func(part string) bool { return part[0] == '.' || part[0] == '\\' })
}

// Matches reports whether a path matches.
func (p ArtifactPattern) Matches(file string) bool {
	names := strings.Split(file, "/")
	part, name := 0, 0
	folders, from := -1, 0 // the last ** that was met, and the first name that it does not stand for
	for name < len(names) {
		switch {
		case part < len(p.parts) && p.parts[part] == anyFolders:
			folders, from = part, name
			part++
		case part < len(p.parts) && matchesName(p.parts[part], names[name]):
			part, name = part+1, name+1
		case folders >= 0 && !strings.HasPrefix(names[from], "."): // it stands for one folder more
			from++
			part, name = folders+1, from
		default:
			return false
		}
	}
	return part == len(p.parts)
}

func matchesName(part, name string) bool {
	if strings.HasPrefix(name, ".") && part[0] != '.' && part[0] != '\\' {
		return false
	}
	is, err := path.Match(part, name)
	return err == nil && is
}
