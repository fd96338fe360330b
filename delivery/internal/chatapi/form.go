package chatapi

import (
	"bytes"
	"cmp"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"strings"

	"github.com/sandjet/sandjet/delivery/channel"
)

// Field is a field of a form.
type Field struct{ Name, Value string }

// Form returns the body of a form with a file, and its content type. Fields with an empty value are left out.
func Form(fields []Field, fileField string, f channel.File) (body []byte, kind string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, field := range fields {
		if field.Value == "" {
			continue
		}
		if err := w.WriteField(field.Name, field.Value); err != nil {
			return nil, "", fmt.Errorf("write a form: %w", err)
		}
	}
	part, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="` + fileField + `"; filename="` + FileName(f.Name) + `"`},
		"Content-Type":        {cmp.Or(contentType(f.Type), "application/octet-stream")},
	})
	if err == nil {
		_, err = part.Write(f.Data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, "", fmt.Errorf("write a form: %w", err)
	}
	return b.Bytes(), w.FormDataContentType(), nil
}

// contentType returns s if it is valid in a header, otherwise an empty text.
func contentType(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

// FileName returns a file name that is valid in a form: quotes and control characters, which would end its header, are replaced.
func FileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '"' || r == '\\' || r == '/' {
			return '_'
		}
		return r
	}, cmp.Or(name, "file"))
}
