package cloud_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
)

func frame(flags byte, text string) string {
	head := make([]byte, 5)
	head[0] = flags
	binary.BigEndian.PutUint32(head[1:], uint32(len(text)))
	return string(head) + text
}

type message struct {
	N int `json:"n"`
}

// read reads a stream of these bytes to its end.
func read(t *testing.T, text string) (sum int, err error) {
	t.Helper()
	client := service(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Content-Type"); got != "application/connect+json" {
			t.Errorf("content type %q", got)
		}
		_, _ = io.WriteString(w, text)
	})
	f, err := client.Stream(t.Context(), cloud.Call{Method: "POST", Path: "/s", Body: message{1}}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		var m message
		if err := f.Next(&m); err != nil {
			return sum, err
		}
		sum += m.N
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	two := frame(0, `{"n":3}`) + frame(0, `{"n":4}`)
	for text, want := range map[string]string{
		two + frame(2, "{}"): io.EOF.Error(),
		two + frame(2, `{"error":{"code":"not_found","message":"gone `+token+`"}}`): "POST /s: 0 not_found: gone [redacted]",
		two:                           "without its last message",
		two + frame(0, `{"n":5}`)[:7]: "breaks off",
		two + frame(1, "x"):           "compressed",
		two + "\x00\xff\xff\xff\xff":  "longer than",
		two + frame(0, "{"):           "not understood",
		two + frame(2, "{"):           "not understood",
	} {
		sum, err := read(t, text)
		if sum != 7 || err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, io.EOF) != (want == io.EOF.Error()) {
			t.Errorf("%.60q: %d, %v, want %s", text, sum, err, want)
		}
	}
}

// TestSilentStreams: nothing arrives, and the read returns an error.
func TestSilentStreams(t *testing.T) {
	t.Parallel()
	client := service(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice the end of the connection
		if r.URL.Path == "/v1/late" {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, frame(0, `{"n":1}`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	if _, err := client.Stream(t.Context(), cloud.Call{Method: "POST", Path: "/late"}, 20*time.Millisecond); err == nil {
		t.Error("a stream that does not begin has begun")
	}
	f, err := client.Stream(t.Context(), cloud.Call{Method: "POST", Path: "/s"}, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var m message
	if err := f.Next(&m); err != nil || m.N != 1 {
		t.Errorf("%v, %+v", err, m)
	}
	if err := f.Next(&m); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte(frame(0, `{"n":3}`) + frame(2, "{}")))
	f.Add([]byte(frame(2, `{"error":{}}`)))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := read(t, string(text)); err == nil {
			t.Error("it has no end")
		}
	})
}
