package egress

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// maskAll overwrites every byte of every occurrence of a secret in text.
func maskAll(text []byte, secrets []string) {
	hit := make([]bool, len(text))
	mark(text, hit, secrets)
	apply(text, hit)
}

// mark sets hit for the bytes of text that belong to an occurrence of a secret. Occurrences may overlap.
func mark(text []byte, hit []bool, secrets []string) {
	for _, s := range secrets {
		for at := 0; ; {
			i := bytes.Index(text[at:], []byte(s))
			if i < 0 {
				break
			}
			for k := range s {
				hit[at+i+k] = true
			}
			at += i + 1
		}
	}
}

func apply(text []byte, hit []bool) {
	for i, is := range hit {
		if is {
			text[i] = '*'
		}
	}
}

// maskHeader masks secrets in the values of headers.
func maskHeader[H ~map[string][]string](h H, secrets []string) {
	for _, values := range h {
		for i, value := range values {
			b := []byte(value)
			maskAll(b, secrets)
			values[i] = string(b)
		}
	}
}

// masked masks secrets in a body while it is read. It holds back only bytes that may be the beginning of a secret, so that a body which
// arrives in pieces is passed on in pieces.
type masked struct {
	body    io.ReadCloser
	secrets []string
	trailer http.Header // masked at the end

	text  []byte // read, and not passed on
	hit   []bool // which of its bytes are secret
	ready int    // of text, how much may be passed on
	err   error
}

// Read reads masked bytes.
func (m *masked) Read(p []byte) (int, error) {
	for m.ready == 0 && m.err == nil {
		m.fill()
	}
	if m.ready == 0 {
		return 0, m.err
	}
	n := copy(p, m.text[:m.ready])
	for i := range n {
		if m.hit[i] {
			p[i] = '*'
		}
	}
	m.text, m.hit, m.ready = m.text[n:], m.hit[n:], m.ready-n
	return n, nil
}

// fill reads more of the body and masks it.
func (m *masked) fill() {
	const piece = 16 << 10
	chunk := make([]byte, piece)
	n, err := m.body.Read(chunk)
	m.text, m.hit = append(m.text, chunk[:n]...), append(m.hit, make([]bool, n)...)
	mark(m.text, m.hit, m.secrets)
	m.ready = len(m.text) - begun(m.text, m.secrets)
	if err != nil {
		m.ready, m.err = len(m.text), err // a text that has begun does not continue
		if errors.Is(err, io.EOF) {
			maskHeader(m.trailer, m.secrets)
		}
	}
}

// begun returns how many bytes at the end of text may be the beginning of a secret.
func begun(text []byte, secrets []string) (most int) {
	for _, s := range secrets {
		for n := min(len(s)-1, len(text)); n > most; n-- {
			if bytes.HasSuffix(text, []byte(s[:n])) {
				most = n
			}
		}
	}
	return most
}

// Close closes the body.
func (m *masked) Close() error { return m.body.Close() }
