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

// attributes are the tags that Telegram knows, and what each may have.
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

// ParseHTML returns the text that people see of HTML as Telegram understands it. It is as strict as the strictest reading: each tag is
// known, closed in order, and has no attribute but its own; each & begins one of the named entities or a number.
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
