package wsconn

import (
	"bytes"
	"compress/flate"
	"fmt"
	"strings"
)

// textCases are section 6: text that is valid UTF-8 is echoed, and invalid text is refused at the first wrong byte, however the text is
// cut into frames.
func textCases() (all []wsCase) {
	const kosme = "κόσμε"
	all = []wsCase{
		{id: "6.1.1", what: "an empty text", send: whole(Text, ""), want: []serverFrame{echoed(Text, "")}},
		{id: "6.1.2", what: "three empty fragments", send: frames(begin(Text, ""), more(""), last("")), want: []serverFrame{echoed(Text, "")}},
		{id: "6.1.3", what: "a fragment between two empty ones", send: frames(begin(Text, ""), more("middle frame payload"), last("")),
			want: []serverFrame{echoed(Text, "middle frame payload")}},
		{id: "6.2.2", what: "cut between runes", send: frames(begin(Text, "Hello-µ@ßöä"), last("üàá-UTF-8!!")),
			want: []serverFrame{echoed(Text, "Hello-µ@ßöäüàá-UTF-8!!")}},
		// The rest of the invalid text never comes: the error shows before it.
		{id: "6.4.1", what: "wrong in the second of three fragments", send: frames(begin(Text, kosme), more("\xf4\x90\x80\x80")),
			failed: []CloseCode{CloseInvalidText}},
		{id: "6.4.2", what: "wrong at the second byte of a rune", send: frames(begin(Text, kosme+"\xf4"), more("\x90")),
			failed: []CloseCode{CloseInvalidText}},
	}
	valid := []string{
		"Hello-µ@ßöäüàá-UTF-8!!", kosme, "κ", "κό", "κόσ", "κόσμ", // 6.2, 6.5, 6.6
		"\x00", "\u0080", "\u0800", "\U00010000", // 6.7: the first of each length
		"\x7f", "\u07ff", "\uffff", "\U0010ffff", // 6.9: the last
		"\ud7ff", "\ue000", "\ufffd", // 6.11: beside the surrogates
		"\ufffe", "\U0001fffe", "\U0001ffff", "\U0002fffe", "\U000ffffe", "\U0010fffe", // 6.22: no characters, and valid
		"\ufff9\ufffa\ufffb\ufffc", // 6.23
	}
	for n, s := range valid {
		id := fmt.Sprintf("6.valid.%d", n+1)
		all = append(all,
			wsCase{id: id, what: fmt.Sprintf("%q", s), send: whole(Text, s), want: []serverFrame{echoed(Text, s)}},
			wsCase{id: id + " cut", what: fmt.Sprintf("%q a byte a frame", s), send: inBytes(s), want: []serverFrame{echoed(Text, s)}},
		)
	}
	invalid := []string{
		kosme + "\xed\xa0\x80edited", kosme + "\xf4\x90\x80\x80edited", // 6.3, 6.4
		"\xce", "\xce\xba\xe1", "\xce\xba\xe1\xbd", // 6.6: prefixes that end in a rune
		"\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", // 6.8: of lengths that there are not
		"\xf7\xbf\xbf\xbf", "\xfb\xbf\xbf\xbf\xbf", "\xfd\xbf\xbf\xbf\xbf\xbf", // 6.10
		"\xf4\x90\x80\x80",                             // 6.11: above the last
		"\x80", "\xbf", "\x80\xbf", "\x80\xbf\x80\xbf", // 6.12: continuations of nothing
		"\xc0 \xc1 \xc2 ", "\xe0 \xe1 ", "\xf0 \xf1 ", "\xf8 ", "\xfc ", // 6.13: beginnings alone
		"\xc0", "\xe0\x80", "\xf0\x80\x80", "\xf8\x80\x80\x80", "\xdf", "\xef\xbf", "\xf7\xbf\xbf", // 6.14: without the last byte
		"\xc0\xe0\x80\xf0\x80\x80",         // 6.15
		"\xfe", "\xff", "\xfe\xfe\xff\xff", // 6.16: never there
		"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xf8\x80\x80\x80\xaf", // 6.17: longer than need be
		"\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xfc\x83\xbf\xbf\xbf\xbf", // 6.18
		"\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", // 6.19
		"\xed\xa0\x80", "\xed\xad\xbf", "\xed\xae\x80", "\xed\xaf\xbf", "\xed\xbf\xbf", // 6.20: surrogates
		"\xed\xa0\x80\xed\xb0\x80", "\xed\xaf\xbf\xed\xbf\xbf", // 6.21: pairs of them
	}
	for n, s := range invalid {
		id := fmt.Sprintf("6.invalid.%d", n+1)
		all = append(all,
			wsCase{id: id, what: fmt.Sprintf("%q", s), send: whole(Text, s), failed: []CloseCode{CloseInvalidText}},
			wsCase{id: id + " cut", what: fmt.Sprintf("%q a byte a frame", s), send: inBytes(s), failed: []CloseCode{CloseInvalidText}},
			wsCase{id: id + " bytes", what: fmt.Sprintf("%q as bytes", s), send: whole(Binary, s), want: []serverFrame{echoed(Binary, s)}},
		)
	}
	return all
}

// inBytes returns a text message with one frame per byte.
func inBytes(s string) []byte {
	b := begin(Text, s[:1])
	for i := 1; i < len(s); i++ {
		b = append(b, more(s[i:i+1])...)
	}
	return append(b, last("")...)
}

// limitCases are sections 9 and 10, with messages up to the largest that is allowed.
func limitCases(most int) (all []wsCase) {
	for section, kind := range map[int]Opcode{1: Text, 2: Binary} {
		for n, size := range []int{64 << 10, 256 << 10, most} {
			body := strings.Repeat("*", size)
			all = append(all, wsCase{id: fmt.Sprintf("9.%d.%d", section, n+1), what: fmt.Sprintf("%d bytes", size), send: whole(kind, body),
				want: []serverFrame{echoed(kind, body)}})
		}
		all = append(all,
			wsCase{id: fmt.Sprintf("9.%d.x", section), what: "a frame above the limit", send: whole(kind, strings.Repeat("*", most+1))[:100],
				failed: []CloseCode{CloseTooLarge}},
			wsCase{id: fmt.Sprintf("9.%d.y", section+2), what: "fragments above the limit",
				send: frames(begin(kind, strings.Repeat("*", most)), last("*")), failed: []CloseCode{CloseTooLarge}},
		)
		body := strings.Repeat("*", 256<<10)
		for n, size := range []int{64, 256, 1 << 10, 4 << 10, 64 << 10, 256 << 10} {
			all = append(all, wsCase{id: fmt.Sprintf("9.%d.%d", section+2, n+1), what: fmt.Sprintf("256 KiB in frames of %d", size),
				send: inFrames(kind, body, size), want: []serverFrame{echoed(kind, body)}})
		}
		for n, chop := range []int{64, 128, 256, 512, 1024, 2048} {
			all = append(all, wsCase{id: fmt.Sprintf("9.%d.%d", section+4, n+1), what: fmt.Sprintf("256 KiB in writes of %d", chop),
				send: whole(kind, body), chop: chop, want: []serverFrame{echoed(kind, body)}})
		}
		for n, size := range []int{0, 16, 64, 256, 1024} {
			const trips = 200
			one := strings.Repeat("*", size)
			c := wsCase{id: fmt.Sprintf("9.%d.%d", section+6, n+1), what: fmt.Sprintf("%d messages of %d bytes", trips, size)}
			for range trips {
				c.send = append(c.send, whole(kind, one)...)
				c.want = append(c.want, echoed(kind, one))
			}
			all = append(all, c)
		}
	}
	body := strings.Repeat("*", 65536)
	return append(all, wsCase{id: "10.1.1", what: "64 KiB in frames of 1300 bytes", send: inFrames(Text, body, 1300),
		want: []serverFrame{echoed(Text, body)}})
}

func inFrames(kind Opcode, body string, size int) []byte {
	b := begin(kind, body[:size])
	for body = body[size:]; len(body) > size; body = body[size:] {
		b = append(b, more(body[:size])...)
	}
	return append(b, last(body)...)
}

// offers are how clients ask for compression in section 13; those with a smaller window for the server are declined.
var offers = []struct {
	text  string
	taken bool
}{
	{"permessage-deflate", true},
	{"permessage-deflate; client_no_context_takeover; client_max_window_bits", true},
	{"permessage-deflate; server_no_context_takeover", true},
	{"permessage-deflate; server_max_window_bits=9", false},
	{"permessage-deflate; server_max_window_bits=15", false},
	{"permessage-deflate; server_no_context_takeover; server_max_window_bits=9", false},
	{"permessage-deflate; server_no_context_takeover; server_max_window_bits=15, permessage-deflate", true},
}

// compressionCases are sections 12 and 13.
func compressionCases() (all []wsCase) {
	texts := []string{`{"op":"ev","conv":"c_1","data":{"text":"`, "lorem ipsum dolor sit amet, ",
		"<p class=\"x\">ab</p>\n", "κόσμε ☃ \U0001f600 "}
	for kindOf, pattern := range texts {
		for n, size := range []int{16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072} {
			body := strings.Repeat(pattern, size/len(pattern)+1)
			all = append(all,
				wsCase{id: fmt.Sprintf("12.%d.%d", kindOf+1, n+1), what: fmt.Sprintf("%d bytes compressed", len(body)), offer: offers[0].text,
					send: packed(Text, body), want: []serverFrame{echoed(Text, body)}},
				wsCase{id: fmt.Sprintf("12.%d.%d fragments", kindOf+1, n+1), what: fmt.Sprintf("%d bytes compressed, in fragments", len(body)),
					offer: offers[0].text, send: packedInFrames(Text, body, 7), want: []serverFrame{echoed(Text, body)}},
			)
		}
	}
	body := strings.Repeat(texts[1], 1000)
	for n, offer := range offers {
		send := whole(Text, body)
		if offer.taken {
			send = frames(packed(Text, body), whole(Text, body), packed(Binary, body))
		}
		c := wsCase{id: fmt.Sprintf("13.%d", n+1), what: offer.text, offer: offer.text, send: send, want: []serverFrame{echoed(Text, body)}}
		if offer.taken {
			c.want = append(c.want, echoed(Text, body), echoed(Binary, body))
		} else {
			c.want = c.want[:1]
		}
		all = append(all, c)
	}
	fails := func(id, what string, code CloseCode, send []byte) wsCase {
		return wsCase{id: id, what: what, offer: offers[0].text, send: send, failed: []CloseCode{code}}
	}
	return append(all,
		fails("12.x.1", "a compressed ping", CloseProtocolError, clientFrame(ping|bitDeflated, "x")),
		fails("12.x.2", "a compressed remainder", CloseProtocolError, frames(begin(Text, "a"), clientFrame(bitLast|bitDeflated, "x"))),
		fails("12.x.3", "what does not unpack", CloseInvalidText, clientFrame(text|bitDeflated, "\xff\xff\xff")),
		fails("12.x.4", "compressed text that is not UTF-8", CloseInvalidText, packed(Text, "\xc3\x28")),
		fails("12.x.5", "a bomb", CloseTooLarge, packed(Text, strings.Repeat("x", 8<<20))),
	)
}

// packed is a compressed message.
func packed(kind Opcode, body string) []byte {
	return clientFrame(bitLast|bitDeflated|byte(kind), string(compressed(body)))
}

func packedInFrames(kind Opcode, body string, pieces int) []byte {
	z := string(compressed(body))
	size := max(len(z)/pieces, 1)
	b := clientFrame(bitDeflated|byte(kind), z[:size])
	for z = z[size:]; len(z) > size; z = z[size:] {
		b = append(b, more(z[:size])...)
	}
	return append(b, last(z)...)
}

func compressed(body string) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write([]byte(body)) // memory takes it
	_ = w.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte(deflateTail))
}
