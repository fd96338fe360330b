package sse_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sandjet/sandjet/models/internal/sse"
)

type event struct{ name, data string }

func all(r io.Reader) (list []event, err error) {
	return read(sse.NewReader(r))
}

func read(s *sse.Reader) (list []event, err error) {
	for {
		e, err := s.Next()
		if err != nil {
			return list, err
		}
		list = append(list, event{e.Name, string(e.Data)})
	}
}

// cut reads in two pieces.
func cut(text string, at int) io.Reader {
	return io.MultiReader(strings.NewReader(text[:at]), strings.NewReader(text[at:]))
}

func TestStreamsAreReadAsTheStandardHasThem(t *testing.T) {
	for _, c := range []struct {
		text string
		want []event
	}{
		{"data: a\n\n", []event{{"", "a"}}},
		{"\uFEFFdata: a\n\n", []event{{"", "a"}}},
		{"event: x\ndata: a\ndata:b\ndata\n\n", []event{{"x", "a\nb\n"}}},
		{"event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []event{{"x", "a"}, {"", "b"}}},
		{"data: a\r\rdata: b\r\r", []event{{"", "a"}, {"", "b"}}},
		{": a comment\n\nid: 1\nretry: 2\nother\ndata:  a: b\n\n", []event{{"", " a: b"}}},
		{"event: none\n\ndata: a\n\n", []event{{"", "a"}}},
		{"data:\n\ndata: a\n\n", []event{{"", "a"}}},
		{"data: cut off\n", nil},
		{"data: whole\n\ndata: cut", []event{{"", "whole"}}},
		{"data: ä😀\n\n", []event{{"", "ä😀"}}},
	} {
		for at := range len(c.text) + 1 {
			if got, err := all(cut(c.text, at)); !reflect.DeepEqual(got, c.want) || !errors.Is(err, io.EOF) {
				t.Fatalf("%q cut at %d is %q, %v, not %q", c.text, at, got, err, c.want)
			}
		}
	}
}

// An event is there as soon as its line ends, even if that is a CR and the stream stalls behind it.
func TestAnEventDoesNotWaitForWhatFollows(t *testing.T) {
	broken := errors.New("broken")
	for _, end := range []string{"\n\n", "\r\n\r", "\r\r"} {
		got, err := all(io.MultiReader(strings.NewReader("data: a"+end), iotest.ErrReader(broken)))
		if !reflect.DeepEqual(got, []event{{"", "a"}}) || !errors.Is(err, broken) {
			t.Errorf("%q: %q, %v", end, got, err)
		}
	}
}

// repeat is text without an end.
type repeat struct {
	text string
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.text[r.at%len(r.text)]
		r.at++
	}
	return len(p), nil
}

func TestStreamsAreBounded(t *testing.T) {
	big := strings.Repeat("x", 1<<10)
	for name, c := range map[string]struct {
		r    io.Reader
		want error
	}{
		"one line":           {io.MultiReader(strings.NewReader("data: "), &repeat{text: "x"}), sse.ErrEvent},
		"many lines of data": {&repeat{text: "data: " + big + "\n"}, sse.ErrEvent},
		"a field's name":     {&repeat{text: "x"}, sse.ErrEvent},
		"comments":           {&repeat{text: ":" + big + "\n"}, sse.ErrStream},
		"events":             {&repeat{text: "data: " + big + "\n\n"}, sse.ErrStream},
	} {
		if _, err := read(sse.Bounded(c.r, 8<<10, 64<<10)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("event: x\r\ndata: a\rdata: b\n\n"), 5)
	f.Add([]byte("\uFEFFdata: a\r\n\r\n"), 2)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		whole, err := all(bytes.NewReader(text))
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if at < 0 || at > len(text) {
			at = len(text) / 2
		}
		pieces, _ := all(cut(string(text), at))
		bytewise, _ := all(iotest.OneByteReader(bytes.NewReader(text)))
		if !reflect.DeepEqual(whole, pieces) || !reflect.DeepEqual(whole, bytewise) {
			t.Errorf("whole %q, in pieces %q, byte by byte %q", whole, pieces, bytewise)
		}
		for _, e := range whole {
			if strings.ContainsAny(e.data, "\r") || e.data == "" {
				t.Errorf("%q is no data", e.data)
			}
		}
	})
}
