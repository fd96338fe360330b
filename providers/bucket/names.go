package bucket

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

const (
	maxKey       = 1024 // bytes, of S3
	maxComponent = 255  // bytes, of file systems
)

// Problem returns why a file name below the root of a workspace cannot be a key in a bucket, or a key such a name; "" if it can. It has no
// side effects. A name without a problem means the same on both sides with every service.
func Problem(name string) string {
	switch {
	case name == "":
		return "it is empty"
	case strings.HasSuffix(name, "/"):
		return "it ends with a slash"
	case !utf8.ValidString(name):
		return "it is not UTF-8"
	case strings.ContainsRune(name, '\\'):
		return "it has a backslash"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "it has a NUL byte or another control character"
	case len(name) > maxKey:
		return "it is too long"
	case name[0] == '/' || path.Clean(name) != name || name == "." || name == ".." || strings.HasPrefix(name, "../"):
		return "it has .., . or an empty part"
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxComponent {
			return "a part of it is too long"
		}
	}
	return ""
}

// key returns the key of a file. Code: invalid.
func (b *Bucket) key(name string) (string, error) {
	why := Problem(name)
	if why == "" && len(b.prefix)+len(name) > maxKey {
		why = "it is too long behind the prefix of the workspace"
	}
	if why != "" {
		return "", schemas.Wrap(schemas.Invalid, "bucket", fmt.Sprintf("%q cannot be a key in a bucket: %s", schemas.Quotable(name), why), errKey)
	}
	return b.prefix + name, nil
}
