package cloud_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
)

// TestLines: a stream of lines is read to its end. Anything else is reported as broken or refused.
func TestLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		lines  int
		says   string // of the error; empty: no error
	}{
		"to its end": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "{\"n\":1}\n\n{\"n\":2}\r\n{\"n\":3}")
		}, 3, ""},
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, `{"error":{"code":"stopped","message":"bad token `+token+`"}}`)
		}, 0, "410 stopped: bad token [redacted]"},
		"broken": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "{\"n\":1}\n{\"n\":")
			_ = http.NewResponseController(w).Flush()
			drop(w, r)
		}, 1, "breaks off"},
		"not understood": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{\"n\":1}\nhello\n") }, 1, "not understood"},
		"without an end": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "\""+strings.Repeat("x", 5<<20))
		}, 0, "too long"},
		"silent": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "{\"n\":1}\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, 1, "breaks off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := service(t, c.answer)
			lines, err := client.Lines(t.Context(), cloud.Call{Method: "GET", Path: "/x"}, 3*time.Second)
			n := 0
			for err == nil {
				var one struct {
					N int `json:"n"`
				}
				if err = lines.Next(&one); err == nil {
					if n++; one.N != n {
						t.Errorf("line %d is %+v", n, one)
					}
				}
			}
			if lines != nil {
				_ = lines.Close()
			}
			ended := errors.Is(err, io.EOF)
			if n != c.lines || ended != (c.says == "") || !strings.Contains(err.Error(), c.says) || !ended && !sent(err) {
				t.Errorf("%d lines, then %v", n, err)
			}
		})
	}
}

// TestSilentLines: a silent stream is cut off only after its reader was asked and does not want to wait any longer.
func TestSilentLines(t *testing.T) {
	t.Parallel()
	more := make(chan bool)
	client := service(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, " ")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "1\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	lines, err := client.Lines(t.Context(), cloud.Call{Method: "GET", Path: "/x"}, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	var asked atomic.Int32
	still := func() bool {
		if asked.Add(1) == 2 {
			close(more)
		}
		return asked.Load() < 5
	}
	var n int
	if err := lines.NextWhile(&n, still); err != nil || n != 1 || asked.Load() < 2 {
		t.Errorf("got %d, %v, asked %d times", n, err, asked.Load())
	}
	if err := lines.NextWhile(&n, still); err == nil || asked.Load() < 5 {
		t.Errorf("got %v, asked %d times", err, asked.Load())
	}
}

// TestRead: a response that is not JSON is read by the caller's function, which may report that it broke off.
func TestRead(t *testing.T) {
	t.Parallel()
	tries := 0
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a\nb\n") }
	client := service(t, answer, cloud.Retry{Route: "GET /x", Lost: true})
	var got string
	_, err := client.Do(t.Context(), cloud.Call{Method: "GET", Path: "/x", Read: func(b []byte) error {
		if tries++; tries == 1 {
			return errors.New("it breaks off")
		}
		got = string(b)
		return nil
	}})
	if err != nil || got != "a\nb\n" || tries != 2 {
		t.Errorf("%q after %d tries: %v", got, tries, err)
	}
	refused := &cloud.Error{Status: http.StatusGone}
	_, err = client.Do(t.Context(), cloud.Call{Method: "GET", Path: "/x", Read: func([]byte) error { return refused }})
	if !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
}

// FuzzNextLine: whatever a service sends, reading ends, and returns at most as many values as there are lines.
func FuzzNextLine(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n\n[2]\n"))
	f.Add([]byte("{\"a\""))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := bufio.NewScanner(bytes.NewReader(text))
		for n := 0; ; n++ {
			var value any
			if err := cloud.NextLine(lines, &value); err != nil {
				return
			}
			if n > bytes.Count(text, []byte("\n")) {
				t.Fatal(fmt.Sprint("there is no end of ", n, " lines"))
			}
		}
	})
}
