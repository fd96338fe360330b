package telegramtest

import (
	"fmt"
	"html"
	"regexp"
	"strings"
)

var (
	tagPattern    = regexp.MustCompile(`^<(/?)([a-z-]+)((?:\s+[a-z-]+(?:="[^"<>]*")?)*)\s*>`)
	entityPattern = regexp.MustCompile(`^&(?:lt|gt|amp|quot|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});`)
)

// attributes returns the attribute that a tag may have, if any, and whether Telegram supports the tag.
func attributes(tag string) (may string, known bool) {
	switch tag {
	case "b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "pre", "tg-spoiler":
		return "", true
	case "a":
		return "href", true
	case "code", "span":
		return "class", true
	case "blockquote":
		return "expandable", true
	case "tg-emoji":
		return "emoji-id", true
	}
	return "", false
}

// ParseHTML returns the visible text of Telegram's HTML. It is as strict as Telegram's documentation permits: every tag must be supported,
// closed in order, and have no attribute but its own; every & must begin a supported named entity or a number.
func ParseHTML(s string) (string, error) {
	var b strings.Builder
	var open []string
	for i := 0; i < len(s); {
		switch rest := s[i:]; rest[0] {
		case '<':
			m := tagPattern.FindStringSubmatch(rest)
			if m == nil {
				return "", fmt.Errorf("unsupported start tag at byte offset %d", i)
			}
			may, known := attributes(m[2])
			if !known {
				return "", fmt.Errorf("unsupported start tag %q at byte offset %d", m[2], i)
			}
			if m[1] == "/" {
				if len(open) == 0 || open[len(open)-1] != m[2] || strings.TrimSpace(m[3]) != "" {
					return "", fmt.Errorf("unexpected end tag at byte offset %d", i)
				}
				open = open[:len(open)-1]
			} else {
				name, _, _ := strings.Cut(strings.TrimSpace(m[3]), "=")
				if name != "" && name != may {
					return "", fmt.Errorf("unexpected attribute %q at byte offset %d", name, i)
				}
				if len(open) > 0 && (open[len(open)-1] == "code" || open[len(open)-1] == "pre" && m[2] != "code") {
					return "", fmt.Errorf("entities within code at byte offset %d", i)
				}
				open = append(open, m[2])
			}
			i += len(m[0])
		case '&':
			m := entityPattern.FindString(rest)
			if m == "" {
				return "", fmt.Errorf("unsupported entity at byte offset %d", i)
			}
			b.WriteString(html.UnescapeString(m))
			i += len(m)
		default:
			b.WriteByte(rest[0])
			i++
		}
	}
	if len(open) > 0 {
		return "", fmt.Errorf("can't find end tag corresponding to start tag %s", open[len(open)-1])
	}
	return b.String(), nil
}
