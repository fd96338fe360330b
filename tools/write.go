package tools

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// WriteData is the structured result of write.
type WriteData struct {
	Path    string `json:"path"`
	Bytes   int    `json:"bytes"`   // number of bytes written
	Created bool   `json:"created"` // the file did not exist before
	ETag    string `json:"etag,omitzero"`
}

// write is a compiled call of write.
type write struct {
	place
	in schemas.WriteInput
}

func newWrite(c schemas.Call, in schemas.WriteInput) (fileTool, error) {
	p, err := newPlace(c, in.FilePath)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(in.FilePath, "/") {
		return nil, schemas.Invalidf("input.file_path", "%s is a directory: give a file name; parent directories are created",
			schemas.Quotable(in.FilePath))
	}
	if in.Mode == "" {
		in.Mode = schemas.WriteOverwrite
	}
	if in.IfMatch = strings.ToLower(in.IfMatch); in.IfMatch != "" {
		if b, err := hex.DecodeString(in.IfMatch); err != nil || len(b) != sha256.Size {
			return nil, schemas.Invalidf("input.if_match",
				"is not an etag: use the etag that read or write returned (SHA-256 of the content in hex)")
		}
	}
	return write{p, in}, nil
}

func (t write) stdin() []byte {
	match := t.in.IfMatch
	if match == "" {
		match = "-"
	}
	b := fmt.Appendf(nil, "%s\n%s %s\n", t.name, t.in.Mode, match)
	return appendBase64(b, t.in.Content)
}

func (t write) present(a answer) outcome {
	if a.word != wordOK {
		return outcome{err: failure(a.word, "directory of file", t.String())}
	}
	data := WriteData{Path: t.String(), Bytes: len(t.in.Content), Created: a.number(0) == 1}
	verb := "Wrote"
	if t.in.Mode == schemas.WriteAppend {
		verb = "Appended to"
	}
	if t.in.Mode != schemas.WriteAppend || data.Created {
		data.ETag = etag([]byte(t.in.Content))
	}
	return outcome{text: fmt.Sprintf("%s %s (%s)", verb, t, plural(int64(len(t.in.Content)), "byte")), data: data}
}

// etag returns the SHA-256 of a content in hex.
func etag(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// appendBase64 appends s in base64, as one line.
func appendBase64(b []byte, s string) []byte {
	return append(base64.StdEncoding.AppendEncode(b, []byte(s)), '\n')
}
