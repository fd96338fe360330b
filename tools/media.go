package tools

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

const unknownMedia = "application/octet-stream"

// mediaType detects the type of a binary file from its beginning. Text is detected only in encodings of several bytes per character: a
// file that merely begins like text has an unknown type.
func mediaType(peek []byte) string {
	if media := known(peek); media != "" {
		return media
	}
	media := http.DetectContentType(peek)
	if strings.HasPrefix(media, "text/") && !wideText(media) {
		return unknownMedia
	}
	return media
}

// known returns the media type of a beginning that [http.DetectContentType] does not know; else "".
func known(peek []byte) string {
	for _, m := range [...]struct {
		at    int
		bytes string
		media string
	}{
		{0, "\x7fELF", "application/x-elf"},
		{0, "SQLite format 3\x00", "application/vnd.sqlite3"},
		{0, "\x28\xb5\x2f\xfd", "application/zstd"},
		{0, "\xfd7zXZ\x00", "application/x-xz"},
		{0, "BZh", "application/x-bzip2"},
		{0, "7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"},
		{0, "PAR1", "application/vnd.apache.parquet"},
		{0, "\xff\xfe\x00\x00", "text/plain; charset=utf-32le"}, // before UTF-16, which has the same beginning
		{0, "\x00\x00\xfe\xff", "text/plain; charset=utf-32be"},
		{257, "ustar", "application/x-tar"},
	} {
		if m.at < len(peek) && bytes.HasPrefix(peek[m.at:], []byte(m.bytes)) {
			return m.media
		}
	}
	return ""
}

// wideText reports whether a media type is text with several bytes per character.
func wideText(media string) bool {
	return strings.Contains(media, "charset=utf-16") || strings.Contains(media, "charset=utf-32")
}

// looksBinary reports whether a file that begins with peek cannot be read as text: it has a NUL or, if it is not UTF-8, it begins like a
// known format or with control characters. Text in a single-byte encoding is readable.
func looksBinary(peek []byte) bool {
	return hasNUL(peek) || !isText(peek) && (known(peek) != "" || !strings.HasPrefix(http.DetectContentType(peek), "text/"))
}

// isText reports whether the beginning of a file is UTF-8. A character may be cut off at its end.
func isText(peek []byte) bool {
	if len(peek) >= peekBytes {
		peek = peek[:peekBytes]
		peek = peek[:schemas.WholeText(peek)]
	}
	return utf8.Valid(peek)
}

// hasNUL reports whether the beginning of a file contains a NUL.
func hasNUL(peek []byte) bool { return bytes.IndexByte(peek[:min(len(peek), peekBytes)], 0) >= 0 }

// valid returns b with U+FFFD in place of every run of bytes that is not UTF-8.
func valid(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }

// plural returns a number with its unit: 1 byte, 2 bytes.
func plural(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

// sizeOf returns a number of bytes as text: 1 byte, 1,204 bytes.
func sizeOf(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return grouped(n) + " bytes"
}

// grouped returns a number with commas: 1,204.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
