package schemas

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of skills.
const (
	MaxSkills                  = 200       // skills of an account
	MaxSkillsKept        int64 = 256 << 20 // bytes of an account's bundles, with those that were replaced within the last hour or so
	MaxSkillFile               = 5 << 20   // bytes of one file
	MaxSkillBundle             = 30 << 20  // bytes of all files of a skill
	MaxSkillFiles              = 500       // files of a skill
	MaxSkillPath               = 512       // bytes of a file's path
	MaxSkillFrontMatter        = 16 << 10  // bytes of the front matter of SKILL.md
	MaxSkillName               = 64        // characters
	MaxSkillDescription        = 1024      // characters
	MaxSkillField              = 500       // characters of compatibility, and of license
	MaxSkillMetadata           = 64        // names in metadata
	MaxSkillAllowedTools       = 4096      // bytes
	MaxAgentSkills             = 64        // skills of an agent
)

const (
	// SkillsFolder is where skills are staged in a workspace.
	SkillsFolder = ".agents/skills"
	// OtherSkillsFolder is where some programs look for skills instead.
	OtherSkillsFolder = ".claude/skills"
	// SkillMark is the file in a staged skill that says which it is: its digest.
	SkillMark = ".sandjet-skill"
)

// SkillID names a skill: "skill_" and letters or digits. It follows from account and name, so that a name is there once.
type SkillID string

// SkillPrefix begins the ids of skills.
const SkillPrefix = "skill_"

// Validate reports whether id is a well-formed skill id.
func (id SkillID) Validate() error { return validatePrefixed("skill", SkillPrefix, string(id)) }

// SkillManifest is what a SKILL.md says of its skill, by the rules of https://agentskills.io/specification.
type SkillManifest struct {
	Name          string            `json:"name"`        // a-z 0-9 and hyphens, and the name of its folder
	Description   string            `json:"description"` // what it does, and when it is to be used
	License       string            `json:"license,omitzero"`
	Compatibility string            `json:"compatibility,omitzero"` // what it needs
	Metadata      map[string]string `json:"metadata,omitempty"`
	AllowedTools  string            `json:"allowed_tools,omitzero"` // with blanks between them; it is not enforced
}

// Skill is the record of a skill. Its files are a bundle, stored before the record that names it.
type Skill struct {
	ID      SkillID   `json:"id"`
	Account AccountID `json:"account"`

	SkillManifest

	Digest  string    `json:"digest"` // SHA-256 of the bundle's tar, in hex
	Size    int64     `json:"size"`   // bytes of that tar
	Files   int       `json:"files"`
	Bytes   int64     `json:"bytes"` // of the files
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated,omitzero"`
}

// SkillDocument is a skill as clients see it.
type SkillDocument struct {
	ID            SkillID           `json:"id"`
	Name          string            `json:"name"`
	Description   string            `json:"description"`
	License       string            `json:"license,omitzero"`
	Compatibility string            `json:"compatibility,omitzero"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	AllowedTools  string            `json:"allowed_tools,omitzero"`
	Digest        string            `json:"digest"` // SHA-256 of the bundle's tar, in hex
	Files         int               `json:"files"`
	Bytes         int64             `json:"bytes"`
	Created       time.Time         `json:"created"`
	Updated       time.Time         `json:"updated"`
}

// Document is what clients see of s.
func (s Skill) Document() SkillDocument {
	d := SkillDocument{
		ID: s.ID, Name: s.Name, Description: s.Description, License: s.License, Compatibility: s.Compatibility, Metadata: s.Metadata,
		AllowedTools: s.AllowedTools, Digest: s.Digest, Files: s.Files, Bytes: s.Bytes, Created: s.Created, Updated: s.Updated,
	}
	if d.Updated.IsZero() {
		d.Updated = d.Created
	}
	return d
}

// SkillSummary is what a model sees of a skill before it loads it.
type SkillSummary struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// ValidateSkillName reports whether a skill may have a name. Code: invalid.
func ValidateSkillName(field, name string) error {
	bad := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	switch {
	case name == "":
		return Invalidf(field, "is missing")
	case len(name) > MaxSkillName:
		return Invalidf(field, "%q is longer than %d characters", Quotable(name), MaxSkillName)
	case strings.ContainsFunc(name, bad) || strings.Trim(name, "-") != name || strings.Contains(name, "--"):
		return Invalidf(field, "%q is not the name of a skill: use a-z, 0-9 and single hyphens between them", Quotable(name))
	}
	return nil
}

// Validate reports everything that is wrong with m. Code: invalid.
func (m SkillManifest) Validate() error {
	var p Problems
	p.Add("", ValidateSkillName("name", m.Name))
	if strings.TrimSpace(m.Description) == "" {
		p.Add("description", Invalidf("", "is missing: say what the skill does, and when it is to be used"))
	}
	for _, f := range []struct {
		field, value string
		most         int
	}{
		{"description", m.Description, MaxSkillDescription}, {"license", m.License, MaxSkillField},
		{"compatibility", m.Compatibility, MaxSkillField}, {"allowed-tools", m.AllowedTools, MaxSkillAllowedTools},
	} {
		if n := utf8.RuneCountInString(f.value); n > f.most {
			p.Add(f.field, Invalidf("", "is %d characters long: the limit is %d", n, f.most))
		}
		if !utf8.ValidString(f.value) || strings.IndexByte(f.value, 0) >= 0 {
			p.Add(f.field, Invalidf("", "is not text in UTF-8"))
		}
	}
	if len(m.Metadata) > MaxSkillMetadata {
		p.Add("metadata", Invalidf("", "has %d names: at most %d", len(m.Metadata), MaxSkillMetadata))
	}
	return p.Err()
}
