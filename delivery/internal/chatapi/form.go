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

// Field is one of a form.
type Field struct{ Name, Value string }

// Form is the body of a form with a file, and its type. Fields with an empty value are left out.
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

// contentType is s if it can stand in a header.
func contentType(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

// FileName is a name that a form can hold: quotes and control characters would end its header.
func FileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '"' || r == '\\' || r == '/' {
			return '_'
		}
		return r
	}, cmp.Or(name, "file"))
}
