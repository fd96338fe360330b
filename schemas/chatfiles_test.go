package schemas_test

import (
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

func TestSafeFileName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"report.pdf": "report.pdf", "Bản kê (1).xlsx": "Bản kê (1).xlsx", "../../etc/passwd": "passwd", `C:\Users\a\b.txt`: "b.txt",
		".bashrc": "_bashrc", "..": "file", "": "file", "/": "file", "a\x00b\nc": "a_b_c", "a\u202egpj.exe": "a_gpj.exe", "-rf": "-rf",
		"a. ": "a", "~": "~", "\xff\xfe": "file", strings.Repeat("x", 300) + ".tar.gz": strings.Repeat("x", 117) + ".gz",
	} {
		if got := schemas.SafeFileName(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

// Whatever name a person gives a file, it stays in its folder, is not hidden, and no two are one.
func FuzzInboxPaths(f *testing.F) {
	f.Add("a.txt", "A.TXT", "a-2.txt", "text/plain")
	f.Add("../x", "..", "\x00", "a\nb")
	f.Fuzz(func(t *testing.T, a, b, c, kind string) {
		files := []schemas.ChatFile{{Name: a, Type: kind}, {Name: b}, {Name: c}, {Name: a}, {Name: b}}
		seen := map[string]bool{}
		for i, p := range schemas.InboxPaths("in_1", files) {
			name := strings.TrimPrefix(p, "inbox/in_1/")
			if path.Clean(p) != p || strings.Contains(name, "/") || name == "" || name[0] == '.' || len(name) > schemas.MaxChatFileName+8 ||
				!utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || seen[strings.ToLower(name)] {
				t.Errorf("%q is stored at %q", files[i].Name, p)
			}
			seen[strings.ToLower(name)] = true
			if schemas.SafeFileName(name) == "" {
				t.Errorf("%q has no safe name", name)
			}
		}
		files[1].Reason = "why"
		said := schemas.ChatMessage{Text: "text", Files: files}.Said()
		if strings.Count(said, "\n") != 7 || !strings.HasPrefix(said, "text\n\n") {
			t.Errorf("%q", said)
		}
	})
}
