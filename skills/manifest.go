package skills

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/sandjet/sandjet/schemas"
)

// ParseManifest reads the front matter of a SKILL.md: a block of YAML between two lines of three hyphens. Fields that the format does not
// have are left alone. Codes: invalid (with the field and the remedy).
func ParseManifest(file []byte) (schemas.SkillManifest, error) {
	var m schemas.SkillManifest
	front, err := frontMatter(file)
	if err != nil {
		return m, err
	}
	fields, err := decode(front)
	if err != nil {
		return m, err
	}
	for _, f := range []struct {
		name string
		to   *string
	}{
		{"name", &m.Name}, {"description", &m.Description}, {"license", &m.License}, {"compatibility", &m.Compatibility},
	} {
		if *f.to, err = text(fields[f.name]); err != nil {
			return m, schemas.Invalidf(FileName, "%s %s", f.name, err)
		}
	}
	if m.AllowedTools, err = list(fields["allowed-tools"]); err != nil {
		return m, schemas.Invalidf(FileName, "allowed-tools %s", err)
	}
	if m.Metadata, err = pairs(fields["metadata"]); err != nil {
		return m, schemas.Invalidf(FileName, "metadata %s", err)
	}
	return m, m.Validate()
}

// frontMatter is the YAML at the top of a SKILL.md.
func frontMatter(file []byte) ([]byte, error) {
	if !utf8.Valid(file) {
		return nil, schemas.Invalidf(FileName, "is not text in UTF-8")
	}
	file = bytes.TrimPrefix(file, []byte("\uFEFF"))
	first, rest, _ := bytes.Cut(file, []byte("\n"))
	if string(bytes.TrimRight(first, " \t\r")) != "---" {
		return nil, schemas.Invalidf(FileName, "has no front matter: begin it with a line ---, then name and description, then another ---")
	}
	for at := 0; at < len(rest) && at <= schemas.MaxSkillFrontMatter; {
		line, _, _ := bytes.Cut(rest[at:], []byte("\n"))
		if string(bytes.TrimRight(line, " \t\r")) == "---" {
			return rest[:at], nil
		}
		at += len(line) + 1
	}
	if len(rest) > schemas.MaxSkillFrontMatter {
		return nil, schemas.Invalidf(FileName, "has a front matter of more than %d bytes: write what is long below it",
			schemas.MaxSkillFrontMatter)
	}
	return nil, schemas.Invalidf(FileName, "has a front matter without an end: close it with a line ---")
}

// decode reads YAML without anchors, which could make much of little.
func decode(front []byte) (fields map[string]any, err error) {
	defer func() { // the text is not trusted
		if p := recover(); p != nil {
			fields, err = nil, schemas.Invalidf(FileName, "has a front matter that is not YAML")
		}
	}()
	const deepest = 16
	depth := 0
	for _, t := range lexer.Tokenize(string(front)) {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType:
			return nil, schemas.Invalidf(FileName, "has %s in its front matter: write values out, or in quotes", schemas.Quotable(t.Value))
		case token.MappingStartType, token.SequenceStartType, token.SequenceEntryType:
			if depth++; depth > deepest*deepest {
				return nil, schemas.Invalidf(FileName, "has too many lists in its front matter")
			}
		default:
		}
	}
	if err := yaml.UnmarshalWithOptions(front, &fields); err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, schemas.Invalidf(FileName, "has a front matter that is not YAML with fields: %s. Put text with a colon in quotes",
			schemas.Quotable(line))
	}
	return fields, nil
}

// text is a value that must be text; none is empty.
func text(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return strings.TrimSpace(v), nil
	}
	return "", fmt.Errorf("must be text: put it in quotes")
}

// list is text, or a list of texts with blanks between them.
func list(v any) (string, error) {
	all, ok := v.([]any)
	if !ok {
		return text(v)
	}
	words := make([]string, len(all))
	for i, e := range all {
		word, err := text(e)
		if err != nil {
			return "", err
		}
		words[i] = word
	}
	return strings.Join(words, " "), nil
}

// pairs are names and values; numbers and truth values are taken as they are written.
func pairs(v any) (map[string]string, error) {
	switch v := v.(type) {
	case nil:
		return map[string]string(nil), nil
	case map[string]any:
		out := make(map[string]string, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			switch value := v[name].(type) {
			case string:
				out[name] = value
			case bool:
				out[name] = strconv.FormatBool(value)
			case uint64, int64, float64:
				out[name] = fmt.Sprint(value)
			case nil:
				out[name] = ""
			default:
				return nil, fmt.Errorf("has a value that is not text: %s", schemas.Quotable(name))
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("must be names with texts")
}
