package wsconn

import (
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// deflated is text as a client compresses it.
func deflated(t testing.TB, text []byte, level int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte(deflateTail))
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(b)
	return b
}

func TestWhichOffersOfCompressionAreTaken(t *testing.T) {
	t.Parallel()
	for offer, want := range map[string]bool{
		"":                   false,
		"permessage-deflate": true,
		"Permessage-Deflate": true,
		"permessage-deflate; client_max_window_bits":                                                  true, // Chromium
		"permessage-deflate; server_no_context_takeover; client_no_context_takeover":                  true, // gorilla
		"permessage-deflate; client_max_window_bits=12":                                               true,
		`permessage-deflate; client_max_window_bits="8"`:                                              true,
		"permessage-deflate;client_max_window_bits=7":                                                 false,
		"permessage-deflate;client_max_window_bits=16":                                                false,
		"permessage-deflate;client_max_window_bits=09":                                                false,
		"permessage-deflate;client_max_window_bits=x":                                                 false,
		"permessage-deflate; server_max_window_bits=10":                                               false,
		"permessage-deflate; server_max_window_bits=10, permessage-deflate; client_max_window_bits=9": true,
		"permessage-deflate; server_no_context_takeover=1":                                            false,
		"permessage-deflate; server_no_context_takeover; server_no_context_takeover":                  false,
		"permessage-deflate; other":                                                                   false,
		"permessage-deflate;":                                                                         false,
		"x-webkit-deflate-frame":                                                                      false,
		"x-webkit-deflate-frame, permessage-deflate":                                                  true,
	} {
		if got := offersDeflate(http.Header{"Sec-Websocket-Extensions": {offer}}); got != want {
			t.Errorf("%q: %v, want %v", offer, got, want)
		}
	}
	if !offersDeflate(http.Header{"Sec-Websocket-Extensions": {"other", "permessage-deflate"}}) {
		t.Error("an offer in a second line is not taken")
	}
}

func TestCompressedMessagesAreReadUpToTheLimit(t *testing.T) {
	t.Parallel()
	final := func(text []byte) []byte { // a compressor that ends its stream, which the RFC allows
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(text)
		_ = w.Close()
		return append(b.Bytes(), 0)
	}
	most := bytes.Repeat([]byte("x"), maxMessage)
	bomb := deflated(t, make([]byte, 16<<20), flate.BestCompression)
	if len(bomb) > maxMessage {
		t.Fatalf("the bomb is %d bytes: it would not be let in", len(bomb))
	}
	p := inflaters{most: maxMessage}
	for name, tc := range map[string]struct {
		packed []byte
		want   []byte
		err    error
	}{
		"nothing":             {deflated(t, nil, 1), nil, nil},
		"no bytes at all":     {nil, nil, errNotDeflate},
		"text":                {deflated(t, []byte("hello"), 6), []byte("hello"), nil},
		"not smaller":         {deflated(t, noise(1000), 0), noise(1000), nil},
		"ended":               {final([]byte("hello")), []byte("hello"), nil},
		"as much as may be":   {deflated(t, most, 1), most, nil},
		"one byte above":      {deflated(t, append(most, 'x'), 1), nil, errTooLarge},
		"a bomb":              {bomb, nil, errTooLarge},
		"not deflate":         {[]byte("\xff\xff\xff"), nil, errNotDeflate},
		"cut off":             {deflated(t, []byte(strings.Repeat("hello ", 9)), 6)[:4], nil, errNotDeflate},
		"a far back distance": {[]byte{0x4b, 0x02, 0x7e, 0x7e}, nil, errNotDeflate},
	} {
		for range 2 { // the second time with a reader that was used
			got, err := p.message(bytes.Clone(tc.packed))
			if !errors.Is(err, tc.err) || tc.err == nil && err != nil || !bytes.Equal(got, tc.want) {
				t.Errorf("%s: %d bytes, %v; want %d, %v", name, len(got), err, len(tc.want), tc.err)
			}
		}
	}
}

func TestMessagesAreCompressedWhereThatHelps(t *testing.T) {
	t.Parallel()
	d := newDeflaters()
	before := []byte("before")
	text := []byte(strings.Repeat(`{"op":"ev","conv":"c_1"},`, 4000))
	for range 3 {
		b, packed := d.message(bytes.Clone(before), Text, text[:100], text[100:])
		if !packed || !bytes.HasPrefix(b, before) || len(b) > len(text)/20 {
			t.Fatalf("%d bytes of %d, packed %v", len(b), len(text), packed)
		}
		b = b[len(before):]
		if b[0] != bitLast|bitDeflated|byte(Text) {
			t.Errorf("first byte %#x", b[0])
		}
		const head = 4 // below 64 KiB: two bytes and two of the length
		r := flate.NewReader(io.MultiReader(bytes.NewReader(b[head:]), strings.NewReader(inflateTail)))
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d of %d bytes came back, %v", len(got), len(text), err)
		}
	}
	if b, packed := d.message(before, Text, noise(5000)); packed || !bytes.Equal(b, before) {
		t.Errorf("noise: packed %v, %d bytes", packed, len(b))
	}
}

// FuzzInflate: whatever a client sends as compressed, what comes out is within the limit, or an error.
//
//guarantee:bad-input-is-answered-not-guessed
func FuzzInflate(f *testing.F) {
	f.Add(deflated(f, []byte(`{"op":"ping"}`), 1))
	f.Add(deflated(f, make([]byte, 1<<20), 9))
	f.Add([]byte{0xff})
	f.Add([]byte{})
	p := inflaters{most: maxMessage}
	f.Fuzz(func(t *testing.T, b []byte) {
		text, err := p.message(bytes.Clone(b))
		if len(text) > maxMessage || err != nil && text != nil {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
	})
}

// FuzzOffersDeflate: an offer is accepted only if it names the compression extension and does not demand a smaller window than the server
// uses.
func FuzzOffersDeflate(f *testing.F) {
	f.Add("permessage-deflate; client_max_window_bits")
	f.Add(`permessage-deflate; server_max_window_bits="10", x`)
	f.Fuzz(func(t *testing.T, offer string) {
		taken := offersDeflate(http.Header{"Sec-Websocket-Extensions": {offer}})
		if lower := strings.ToLower(offer); taken && !strings.Contains(lower, deflateExtension) {
			t.Fatalf("taken: %q", offer)
		}
		if taken && !strings.Contains(offer, ",") && strings.Contains(strings.ToLower(offer), "server_max") {
			t.Fatalf("taken with a smaller window: %q", offer)
		}
	})
}
