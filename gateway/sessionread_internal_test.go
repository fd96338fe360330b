package gateway

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

// clientFrame is a frame as a client sends it.
func clientFrame(first byte, body string) []byte {
	mask := []byte{1, 2, 3, 4}
	b := appendHeader(nil, first, len(body))
	b[1] |= 0x80
	b = append(b, mask...)
	for i := range len(body) {
		b = append(b, body[i]^mask[i%len(mask)])
	}
	return b
}

func TestFramesAreTakenApart(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 125, 126, 127, 65535, MaxFrame} {
		body := strings.Repeat("x", n)
		whole := clientFrame(wsText, body)
		for _, cut := range []int{0, 1, 2, 5, len(whole) / 2, len(whole) - 1} {
			if _, size, err := splitFrame(bytes.Clone(whole[:cut]), false); size != 0 || err != nil {
				t.Errorf("%d bytes of a frame of %d: size %d, %v", cut, n, size, err)
			}
		}
		f, size, err := splitFrame(append(bytes.Clone(whole), "more"...), false)
		if err != nil || size != len(whole) || !f.last || f.opcode != websocket.TextMessage || string(f.body) != body {
			t.Errorf("a frame of %d: size %d of %d, %d bytes, %v", n, size, len(whole), len(f.body), err)
		}
	}
}

func TestWrongFrames(t *testing.T) {
	t.Parallel()
	unmasked := appendHeader(nil, wsText, 1)
	for name, tc := range map[string]struct {
		frame    []byte
		deflates bool
		want     error
	}{
		"no mask":                  {append(unmasked, 'x'), false, errMalformed},
		"an extension":             {clientFrame(wsText|0x20, "x"), true, errMalformed},
		"another extension":        {clientFrame(wsText|0x10, "x"), true, errMalformed},
		"compressed, not agreed":   {clientFrame(wsText|wsDeflated, "x"), false, errMalformed},
		"a compressed ping":        {clientFrame(wsPing|wsDeflated, "x"), true, errMalformed},
		"a compressed remainder":   {clientFrame(0x80|wsDeflated, "x"), true, errMalformed},
		"compressed and too large": {clientFrame(wsText|wsDeflated, strings.Repeat("x", MaxFrame+1)), true, errTooLarge},
		"a long ping":              {clientFrame(wsPing, strings.Repeat("x", maxControl+1)), false, errMalformed},
		"half a ping":              {clientFrame(websocket.PingMessage, "x"), false, errMalformed},
		"too large":                {clientFrame(wsText, strings.Repeat("x", MaxFrame+1)), false, errTooLarge},
		"only a head, too large":   {[]byte{wsText, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, false, errTooLarge},
	} {
		if _, size, err := splitFrame(tc.frame, tc.deflates); size != 0 || !errors.Is(err, tc.want) {
			t.Errorf("%s: size %d, %v", name, size, err)
		}
	}
}

func TestMessagesArePutTogether(t *testing.T) {
	t.Parallel()
	text, more, end := frame{opcode: websocket.TextMessage, body: []byte("a")}, frame{body: []byte("b")}, frame{last: true, body: []byte("c")}
	alone := frame{last: true, opcode: websocket.TextMessage, body: []byte("abc")}
	large := frame{body: make([]byte, MaxFrame)}
	for name, tc := range map[string]struct {
		frames []frame
		want   string
		err    error
	}{
		"one frame":            {[]frame{alone}, "abc", nil},
		"three":                {[]frame{text, more, end}, "abc", nil},
		"another in between":   {[]frame{text, alone}, "", errMalformed},
		"no beginning":         {[]frame{end}, "", errMalformed},
		"too large altogether": {[]frame{text, large}, "", errTooLarge},
	} {
		var m message
		for i, f := range tc.frames {
			whole, err := m.add(f)
			atEnd := i == len(tc.frames)-1
			if atEnd && !errors.Is(err, tc.err) || !atEnd && err != nil || whole != (atEnd && tc.err == nil) {
				t.Errorf("%s, frame %d: whole %v, %v", name, i, whole, err)
			}
		}
		if tc.err == nil && string(m.text) != tc.want {
			t.Errorf("%s: %q", name, m.text)
		}
	}
}

func FuzzSplitFrame(f *testing.F) {
	f.Add(clientFrame(wsText, `{"op":"ping"}`), false)
	f.Add(clientFrame(wsText|wsDeflated, "\xaaV\xca/P\xb2R*\xc8\xccKW\xaa\x05\x00"), true)
	f.Add(clientFrame(wsClose, "\x03\xe8"), true)
	f.Add([]byte{wsText, 0xfe, 0, 1}, false)
	f.Fuzz(func(t *testing.T, b []byte, deflates bool) {
		whole := bytes.Clone(b)
		f, size, err := splitFrame(b, deflates)
		switch {
		case err != nil, size == 0:
			if size != 0 || len(f.body) > 0 {
				t.Fatalf("%d bytes of %+v with %v", size, f, err)
			}
		case size > len(b) || len(f.body) > MaxFrame || len(f.body) > size-6:
			t.Fatalf("%d of %d bytes, %d of them the body", size, len(b), len(f.body))
		case f.deflated && (!deflates || f.opcode == opcodeContinuation || f.opcode >= websocket.CloseMessage):
			t.Fatalf("%+v is compressed, agreed: %v", f, deflates)
		default:
			if _, short, err := splitFrame(whole[:size-1], deflates); short != 0 || err != nil {
				t.Fatalf("less than a frame is one: %d, %v", short, err)
			}
		}
	})
}

func TestCloseFramesThatMayBeSent(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		"": true, "\x03": false, "\x03\xe8": true, "\x03\xe8bye": true, "\x03\xe8\xff": false, "\x03\xe7": false, "\x00\x00": false,
		"\x03\xec": false, "\x03\xed": false, "\x03\xee": false, "\x03\xf6": true, "\x03\xf7": false, "\x07\xd0": false, "\x0b\xb8": true, "\x13\x87": true, "\x13\x88": false,
	} {
		if isCloseBody([]byte(body)) != want {
			t.Errorf("%q: %v", body, !want)
		}
	}
}
