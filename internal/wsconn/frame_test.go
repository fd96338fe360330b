package wsconn

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const (
	maxMessage = 64 << 10

	text = bitLast | byte(Text)
	ping = bitLast | byte(opPing)
	bye  = bitLast | byte(opClose)
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

// codeOf is the close code that an error stands for; 0: there is none.
func codeOf(err error) CloseCode {
	if e, ok := errors.AsType[*CloseError](err); ok {
		return e.Code
	}
	return 0
}

func TestFramesAreTakenApart(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 125, 126, 127, 65535, maxMessage} {
		body := strings.Repeat("x", n)
		whole := clientFrame(text, body)
		for _, cut := range []int{0, 1, 2, 5, len(whole) / 2, len(whole) - 1} {
			if _, size, err := splitFrame(bytes.Clone(whole[:cut]), maxMessage, false); size != 0 || err != nil {
				t.Errorf("%d bytes of a frame of %d: size %d, %v", cut, n, size, err)
			}
		}
		f, size, err := splitFrame(append(bytes.Clone(whole), "more"...), maxMessage, false)
		if err != nil || size != len(whole) || !f.last || f.opcode != Text || string(f.body) != body {
			t.Errorf("a frame of %d: size %d of %d, %d bytes, %v", n, size, len(whole), len(f.body), err)
		}
	}
}

func TestWrongFrames(t *testing.T) {
	t.Parallel()
	unmasked := appendHeader(nil, text, 1)
	for name, tc := range map[string]struct {
		frame    []byte
		deflates bool
		want     CloseCode
	}{
		"no mask":                  {append(unmasked, 'x'), false, CloseProtocolError},
		"an extension":             {clientFrame(text|0x20, "x"), true, CloseProtocolError},
		"another extension":        {clientFrame(text|0x10, "x"), true, CloseProtocolError},
		"compressed, not agreed":   {clientFrame(text|bitDeflated, "x"), false, CloseProtocolError},
		"a compressed ping":        {clientFrame(ping|bitDeflated, "x"), true, CloseProtocolError},
		"a compressed remainder":   {clientFrame(0x80|bitDeflated, "x"), true, CloseProtocolError},
		"compressed and too large": {clientFrame(text|bitDeflated, strings.Repeat("x", maxMessage+1)), true, CloseTooLarge},
		"a long ping":              {clientFrame(ping, strings.Repeat("x", maxControl+1)), false, CloseProtocolError},
		"half a ping":              {clientFrame(byte(opPing), "x"), false, CloseProtocolError},
		"too large":                {clientFrame(text, strings.Repeat("x", maxMessage+1)), false, CloseTooLarge},
		"only a head, too large":   {[]byte{text, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, false, CloseTooLarge},
	} {
		if _, size, err := splitFrame(tc.frame, maxMessage, tc.deflates); size != 0 || codeOf(err) != tc.want {
			t.Errorf("%s: size %d, %v", name, size, err)
		}
	}
}

func TestMessagesArePutTogether(t *testing.T) {
	t.Parallel()
	begun, more, end := frame{opcode: Text, body: []byte("a")}, frame{body: []byte("b")}, frame{last: true, body: []byte("c")}
	alone := frame{last: true, opcode: Text, body: []byte("abc")}
	large := frame{body: make([]byte, maxMessage)}
	for name, tc := range map[string]struct {
		frames []frame
		want   string
		err    CloseCode
	}{
		"one frame":            {[]frame{alone}, "abc", 0},
		"three":                {[]frame{begun, more, end}, "abc", 0},
		"another in between":   {[]frame{begun, alone}, "", CloseProtocolError},
		"no beginning":         {[]frame{end}, "", CloseProtocolError},
		"half a rune":          {[]frame{begun, {last: true, body: []byte("\xc3")}}, "", CloseInvalidText},
		"a rune in two halves": {[]frame{begun, {body: []byte("\xc3")}, {last: true, body: []byte("\xa9")}}, "a\u00e9", 0},
		"wrong, and not over":  {[]frame{begun, {body: []byte("\xf4\x90")}}, "", CloseInvalidText},
		"too large altogether": {[]frame{begun, large}, "", CloseTooLarge},
	} {
		var m message
		for i, f := range tc.frames {
			whole, err := m.add(f, maxMessage)
			atEnd := i == len(tc.frames)-1
			if atEnd && codeOf(err) != tc.err || !atEnd && err != nil || whole != (atEnd && tc.err == 0) {
				t.Errorf("%s, frame %d: whole %v, %v", name, i, whole, err)
			}
		}
		if tc.err == 0 && string(m.text) != tc.want {
			t.Errorf("%s: %q", name, m.text)
		}
	}
}

//guarantee:bad-input-is-answered-not-guessed
func FuzzSplitFrame(f *testing.F) {
	f.Add(clientFrame(text, `{"op":"ping"}`), false)
	f.Add(clientFrame(text|bitDeflated, "\xaaV\xca/P\xb2R*\xc8\xccKW\xaa\x05\x00"), true)
	f.Add(clientFrame(bye, "\x03\xe8"), true)
	f.Add([]byte{text, 0xfe, 0, 1}, false)
	f.Fuzz(func(t *testing.T, b []byte, deflates bool) {
		whole := bytes.Clone(b)
		f, size, err := splitFrame(b, maxMessage, deflates)
		switch {
		case err != nil, size == 0:
			if size != 0 || len(f.body) > 0 {
				t.Fatalf("%d bytes of %+v with %v", size, f, err)
			}
		case size > len(b) || len(f.body) > maxMessage || len(f.body) > size-6:
			t.Fatalf("%d of %d bytes, %d of them the body", size, len(b), len(f.body))
		case f.deflated && (!deflates || f.opcode == opContinuation || f.opcode >= opClose):
			t.Fatalf("%+v is compressed, agreed: %v", f, deflates)
		default:
			if _, short, err := splitFrame(whole[:size-1], maxMessage, deflates); short != 0 || err != nil {
				t.Fatalf("less than a frame is one: %d, %v", short, err)
			}
		}
	})
}

func TestCloseFramesThatMayBeSent(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		"": true, "\x03": false, "\x03\xe8": true, "\x03\xe8bye": true, "\x03\xe8\xff": false, "\x03\xe7": false, "\x00\x00": false,
		"\x03\xec": false, "\x03\xed": false, "\x03\xee": false, "\x03\xf6": true, "\x03\xf7": false, "\x07\xd0": false, "\x0b\xb8": true,
		"\x13\x87": true, "\x13\x88": false,
	} {
		if err := checkCloseBody([]byte(body)); (err == nil) != want {
			t.Errorf("%q: %v", body, err)
		}
	}
}
