package wsconn

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// wsCase is a case like one of the Autobahn test suite, with the same number: what a client sends, and what a server that echoes must
// answer.
type wsCase struct {
	id   string
	what string
	send []byte
	// chop is how many bytes go out with one write, 0: all.
	chop int
	// pieces are sent one after the other instead of send, each once a moment has passed.
	pieces [][]byte
	want   []serverFrame
	// failed are the codes of which the server closes with one. None: the client closes when it has all that it wants, and
	// the server answers that.
	failed []CloseCode
	// closes says that what is sent ends with a close frame, which is answered with its code. 0: with an empty body.
	closes *CloseCode
	// deflated has the client offer compression, in these words.
	offer string
}

func frames(all ...[]byte) []byte { return bytes.Join(all, nil) }

// Frames of clients.
func whole(kind Opcode, body string) []byte { return clientFrame(bitLast|byte(kind), body) }
func begin(kind Opcode, body string) []byte { return clientFrame(byte(kind), body) }
func more(body string) []byte               { return clientFrame(byte(opContinuation), body) }
func last(body string) []byte               { return clientFrame(bitLast, body) }

// closing is a close frame of a client.
func closing(code CloseCode, reason string) []byte {
	return whole(opClose, string(closeBody(code, reason)))
}

// Frames of the server.
func echoed(kind Opcode, body string) serverFrame {
	return serverFrame{first: bitLast | byte(kind), body: body}
}

var protocolError = []CloseCode{CloseProtocolError}

// TestAutobahnCases runs the cases against a server that echoes.
func TestAutobahnCases(t *testing.T) {
	const most = 1 << 20
	s := httptest.NewServer(echoes(t, Options{MaxMessage: most, Compression: true}))
	t.Cleanup(s.Close)
	seen := map[string]bool{}
	for _, c := range allCases(most) {
		if seen[c.id] {
			t.Errorf("case %s is there twice", c.id)
		}
		seen[c.id] = true
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			c.run(t, s.URL, c.chop)
		})
		if small := 2000; c.chop == 0 && len(c.send) > 0 && len(c.send) < small { // and byte by byte
			t.Run(c.id+" in bytes", func(t *testing.T) {
				t.Parallel()
				c.run(t, s.URL, 1)
			})
		}
	}
}

func (c wsCase) run(t *testing.T, url string, chop int) {
	conn := dialEcho(t, url, c.offer)
	sent := make(chan struct{})
	go func() { // large echoes come while it is sent
		defer close(sent)
		c.write(conn, chop)
	}()
	for i, want := range c.want {
		if got := conn.next(); got != want {
			t.Fatalf("%s: frame %d is %s, want %s", c.what, i, got, want)
		}
	}
	if c.failed != nil {
		c.endsWith(t, conn, c.failed)
		return
	}
	<-sent
	code := CloseNormal
	if c.closes != nil {
		code = *c.closes
	} else {
		conn.send(closing(code, ""))
	}
	c.endsWith(t, conn, []CloseCode{code})
}

func (c wsCase) write(conn *client, chop int) {
	for _, p := range c.pieces {
		conn.send(p)
		time.Sleep(20 * time.Millisecond)
	}
	if chop == 0 {
		conn.send(c.send)
		return
	}
	for b := c.send; len(b) > 0; b = b[min(chop, len(b)):] {
		conn.send(b[:min(chop, len(b))])
	}
}

// endsWith reads the server's close frame, and the end of the connection right behind it.
func (c wsCase) endsWith(t *testing.T, conn *client, codes []CloseCode) {
	t.Helper()
	f := conn.next()
	if f.first != bitLast|byte(opClose) {
		t.Fatalf("%s: %s, want a close frame with one of %v", c.what, f, codes)
	}
	ok := false
	for _, code := range codes {
		ok = ok || code == 0 && f.body == "" || code != 0 && strings.HasPrefix(f.body, string(closeBody(code, "")))
	}
	if !ok {
		t.Errorf("%s: %s, want a close frame with one of %v", c.what, f, codes)
	}
	if err := checkCloseBody([]byte(f.body)); err != nil || len(f.body) > maxControl {
		t.Errorf("%s: the server's close frame is none: %s, %v", c.what, f, err)
	}
	if !conn.ended() {
		t.Errorf("%s: the connection goes on behind the close frame", c.what)
	}
}

func (f serverFrame) String() string {
	if f.err != nil {
		return fmt.Sprintf("the end (%v)", f.err)
	}
	const some = 40
	return fmt.Sprintf("%#x %q (%d bytes)", f.first, f.body[:min(len(f.body), some)], len(f.body))
}

func allCases(most int) (all []wsCase) {
	all = append(all, framingCases()...)
	all = append(all, pingCases()...)
	all = append(all, reservedCases()...)
	all = append(all, fragmentCases()...)
	all = append(all, textCases()...)
	all = append(all, closeCases()...)
	all = append(all, limitCases(most)...)
	return append(all, compressionCases()...)
}

// framingCases are section 1.
func framingCases() (all []wsCase) {
	for section, kind := range map[int]Opcode{1: Text, 2: Binary} {
		fill := "*"
		if kind == Binary {
			fill = "\xfe"
		}
		for n, size := range []int{0, 125, 126, 127, 128, 65535, 65536} {
			body := strings.Repeat(fill, size)
			all = append(all, wsCase{
				id: fmt.Sprintf("1.%d.%d", section, n+1), what: fmt.Sprintf("a message of %d bytes", size),
				send: whole(kind, body), want: []serverFrame{echoed(kind, body)},
			})
		}
		body := strings.Repeat(fill, 65536)
		all = append(all, wsCase{
			id: fmt.Sprintf("1.%d.8", section), what: "64 KiB in writes of 997 bytes", chop: 997,
			send: whole(kind, body), want: []serverFrame{echoed(kind, body)},
		})
	}
	return all
}

// pingCases are section 2.
func pingCases() []wsCase {
	const binary = "\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
	long := strings.Repeat("\xfe", maxControl)
	var ten []byte
	var pongs []serverFrame
	for n := range 10 {
		ten = append(ten, whole(opPing, fmt.Sprintf("payload-%d", n))...)
		pongs = append(pongs, echoed(opPong, fmt.Sprintf("payload-%d", n)))
	}
	return []wsCase{
		{id: "2.1", what: "an empty ping", send: whole(opPing, ""), want: []serverFrame{echoed(opPong, "")}},
		{id: "2.2", what: "a ping with text", send: whole(opPing, "Hello, world!"), want: []serverFrame{echoed(opPong, "Hello, world!")}},
		{id: "2.3", what: "a ping with bytes", send: whole(opPing, binary), want: []serverFrame{echoed(opPong, binary)}},
		{id: "2.4", what: "a ping of 125 bytes", send: whole(opPing, long), want: []serverFrame{echoed(opPong, long)}},
		{id: "2.5", what: "a ping of 126 bytes", send: whole(opPing, long+"\xfe"), failed: protocolError},
		{id: "2.6", what: "a ping in bytes", send: whole(opPing, long), chop: 1, want: []serverFrame{echoed(opPong, long)}},
		{id: "2.7", what: "a pong that nobody asked for", send: whole(opPong, "")},
		{id: "2.8", what: "the same with text", send: whole(opPong, "unsolicited pong payload")},
		{id: "2.9", what: "a pong, then a ping", send: frames(whole(opPong, "unsolicited"), whole(opPing, "ping")),
			want: []serverFrame{echoed(opPong, "ping")}},
		{id: "2.10", what: "ten pings", send: ten, want: pongs},
		{id: "2.11", what: "ten pings in bytes", send: ten, chop: 1, want: pongs},
	}
}

// reservedCases are sections 3 (bits) and 4 (opcodes).
func reservedCases() []wsCase {
	const rsv = 0x10
	small := "small payload"
	first := []serverFrame{echoed(Text, small)}
	bits := func(n byte, kind Opcode, body string) []byte { return clientFrame(bitLast|n*rsv|byte(kind), body) }
	all := []wsCase{
		{id: "3.1", what: "RSV 1 of a text", send: bits(1, Text, small), failed: protocolError},
		{id: "3.2", what: "RSV 2 after a good text", send: frames(whole(Text, small), bits(2, Text, small), whole(opPing, "")),
			want: first, failed: protocolError},
		{id: "3.3", what: "RSV 3 after a good text", send: frames(whole(Text, small), bits(3, Text, small), whole(opPing, "")),
			want: first, failed: protocolError},
		{id: "3.4", what: "RSV 4 after a good text, in bytes", chop: 1, send: frames(whole(Text, small), bits(4, Text, small), whole(opPing, "")),
			want: first, failed: protocolError},
		{id: "3.5", what: "RSV 5 of bytes", send: bits(5, Binary, small), failed: protocolError},
		{id: "3.6", what: "RSV 6 of a ping", send: bits(6, opPing, small), failed: protocolError},
		{id: "3.7", what: "RSV 7 of a close", send: bits(7, opClose, "\x03\xe8"), failed: protocolError},
		{id: "3.x", what: "no mask", send: appendHeader(nil, text, 0), failed: protocolError},
	}
	for section, lowest := range map[int]Opcode{1: 3, 2: 11} {
		for n := range 5 {
			kind := lowest + Opcode(n)
			c := wsCase{id: fmt.Sprintf("4.%d.%d", section, n+1), what: fmt.Sprintf("opcode %d", kind), failed: protocolError}
			switch n {
			case 0:
				c.send = whole(kind, "")
			case 1:
				c.send = whole(kind, "reserved opcode payload")
			default:
				c.send, c.want = frames(whole(Text, small), whole(kind, small), whole(opPing, "")), first
			}
			all = append(all, c)
		}
	}
	return all
}

// fragmentCases are section 5.
func fragmentCases() []wsCase {
	one, two := "fragment1", "fragment2"
	both := echoed(Text, one+two)
	pong := func(s string) serverFrame { return echoed(opPong, s) }
	five := func(kind Opcode) []byte {
		return frames(begin(kind, "fragment1"), more("fragment2"), whole(opPing, "pongme 1!"), more("fragment3"), more("fragment4"),
			whole(opPing, "pongme 2!"), last("fragment5"))
	}
	all := []wsCase{
		{id: "5.1", what: "a ping in two", send: frames(begin(opPing, one), last(two)), failed: protocolError},
		{id: "5.2", what: "a pong in two", send: frames(begin(opPong, one), last(two)), failed: protocolError},
		{id: "5.3", what: "a text in two", send: frames(begin(Text, one), last(two)), want: []serverFrame{both}},
		{id: "5.4", what: "a text in two, with a pause", pieces: [][]byte{begin(Text, one), last(two)}, want: []serverFrame{both}},
		{id: "5.5", what: "a text in two, in bytes", send: frames(begin(Text, one), last(two)), chop: 1, want: []serverFrame{both}},
		{id: "5.6", what: "a ping between", send: frames(begin(Text, one), whole(opPing, "ping"), last(two)),
			want: []serverFrame{pong("ping"), both}},
		{id: "5.7", what: "a ping between, with pauses", pieces: [][]byte{begin(Text, one), whole(opPing, "ping"), last(two)},
			want: []serverFrame{pong("ping"), both}},
		{id: "5.8", what: "a ping between, in bytes", send: frames(begin(Text, one), whole(opPing, "ping"), last(two)), chop: 1,
			want: []serverFrame{pong("ping"), both}},
		{id: "5.15", what: "a remainder behind a whole text", send: frames(begin(Text, one), last(two), more("fragment3"),
			whole(Text, "fragment4")), want: []serverFrame{both}, failed: protocolError},
		{id: "5.18", what: "two beginnings", send: frames(begin(Text, one), whole(Text, two)), failed: protocolError},
		{id: "5.19", what: "five fragments and two pings", send: five(Text),
			want: []serverFrame{pong("pongme 1!"), pong("pongme 2!"), echoed(Text, "fragment1fragment2fragment3fragment4fragment5")}},
		{id: "5.20", what: "the same of bytes, in pieces", send: five(Binary), chop: 7,
			want: []serverFrame{pong("pongme 1!"), pong("pongme 2!"), echoed(Binary, "fragment1fragment2fragment3fragment4fragment5")}},
	}
	remainders := map[string]func(string) []byte{"the last": last, "more to come": more}
	for name, remainder := range remainders {
		from := map[string]int{"the last": 9, "more to come": 12}[name]
		send := frames(remainder("non-continuation payload"), whole(Text, "Hello, world!"))
		for n, chop := range []int{0, 3, 1} {
			all = append(all, wsCase{id: fmt.Sprintf("5.%d", from+n), what: "a remainder of nothing, " + name, send: send,
				chop: chop, failed: protocolError})
		}
		again := frames(remainder(one), begin(Text, two), last("fragment3"), remainder(one), begin(Text, two), last("fragment3"))
		id := map[string]string{"the last": "5.17", "more to come": "5.16"}[name]
		all = append(all, wsCase{id: id, what: "a remainder of nothing, then a text, twice", send: again, failed: protocolError})
	}
	return all
}

// closeCases are section 7.
func closeCases() []wsCase {
	normal, none := CloseNormal, CloseCode(0)
	hello, bye := whole(Text, "Hello World!"), closing(CloseNormal, "")
	greeted := []serverFrame{echoed(Text, "Hello World!")}
	large := strings.Repeat("*", 256<<10)
	all := []wsCase{
		{id: "7.1.1", what: "a text, then a close", send: frames(hello, bye), want: greeted, closes: &normal},
		{id: "7.1.2", what: "two closes", send: frames(bye, bye), closes: &normal},
		{id: "7.1.3", what: "a ping behind the close", send: frames(bye, whole(opPing, "")), closes: &normal},
		{id: "7.1.4", what: "a text behind the close", send: frames(bye, hello), closes: &normal},
		{id: "7.1.5", what: "a close within a text", send: frames(begin(Text, "fragment1"), bye, last("fragment2")), closes: &normal},
		{id: "7.1.6", what: "a large text, then a close and a ping", send: frames(whole(Text, large), bye, whole(opPing, "")),
			want: []serverFrame{echoed(Text, large)}, closes: &normal},
		{id: "7.3.1", what: "a close without a body", send: whole(opClose, ""), closes: &none},
		{id: "7.3.2", what: "a close with half a code", send: whole(opClose, "\x03"), failed: protocolError},
		{id: "7.3.3", what: "a close with a code", send: bye, closes: &normal},
		{id: "7.3.4", what: "a close with a reason", send: closing(CloseNormal, "Hello World!"), closes: &normal},
		{id: "7.3.5", what: "a close with the longest reason", send: closing(CloseNormal, strings.Repeat("*", 123)), closes: &normal},
		{id: "7.3.6", what: "a close of 126 bytes", send: whole(opClose, "\x03\xe8"+strings.Repeat("*", 124)), failed: protocolError},
		{id: "7.5.1", what: "a reason that is not UTF-8", send: closing(CloseNormal, "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80"),
			failed: []CloseCode{CloseProtocolError, CloseInvalidText}},
	}
	for n, code := range []CloseCode{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999} {
		all = append(all, wsCase{id: fmt.Sprintf("7.7.%d", n+1), what: fmt.Sprintf("code %d", code), send: closing(code, ""), closes: &code})
	}
	for n, code := range []CloseCode{0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999} {
		all = append(all, wsCase{id: fmt.Sprintf("7.9.%d", n+1), what: fmt.Sprintf("code %d", code),
			send: closing(code, ""), failed: protocolError})
	}
	for n, code := range []CloseCode{5000, 65535} { // the RFC leaves them open
		all = append(all, wsCase{id: fmt.Sprintf("7.13.%d", n+1), what: fmt.Sprintf("code %d", code),
			send: closing(code, ""), failed: protocolError})
	}
	return all
}
