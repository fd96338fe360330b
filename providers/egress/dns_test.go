package egress

import (
	"io"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func question(t testing.TB, name string, kind dnsmessage.Type) []byte {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t testing.TB, b []byte) (dnsmessage.RCode, []netip.Addr) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	if m.ID != 7 || !m.Response {
		t.Fatalf("%+v is no answer", m.Header)
	}
	var list []netip.Addr
	for _, a := range m.Answers {
		if r, ok := a.Body.(*dnsmessage.AResource); ok {
			list = append(list, netip.AddrFrom4(r.A))
		}
	}
	return m.RCode, list
}

func TestNamesThatAreNotAllowedDoNotExist(t *testing.T) {
	w := newWorld(t)
	s := w.enter(restricted("a.example", "*.b.example"), Limits{})
	for _, name := range []string{"evil.test.", "c2VjcmV0.data.evil.test.", "a.example.evil.test.", "b.example.", "localhost.",
		"metadata.google.internal."} {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeTXT, dnsmessage.TypeMX,
			dnsmessage.TypeNS, 65, 255} {
			if code, addrs := s.ask(name, kind); code != dnsmessage.RCodeNameError || len(addrs) != 0 {
				t.Errorf("%s %v: %v %v, want no such name", name, kind, code, addrs)
			}
		}
	}
	// An allowed name has an address of version 4 and nothing else: no version 6, no TXT, no keys to hide behind.
	for _, name := range []string{"a.example.", "A.Example.", "x.b.example.", "x.y.B.example."} {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeTXT, 64, 65} {
			if code, addrs := s.ask(name, kind); code != 0 || len(addrs) != 0 {
				t.Errorf("%s %v: %v %v, want nothing", name, kind, code, addrs)
			}
		}
		if code, addrs := s.ask(name, dnsmessage.TypeA); code != 0 || len(addrs) != 1 || !pool.Contains(addrs[0]) {
			t.Errorf("%s: %v %v", name, code, addrs)
		}
	}
	if len(w.Lookups()) != 0 {
		t.Errorf("%v were looked up outside", w.Lookups())
	}
	s.saw(RuleNotAllowed)
}

func TestQuestionsOverTCP(t *testing.T) {
	w := newWorld(t)
	s := w.enter(restricted("a.example"), Limits{})
	c := s.connect("8.8.8.8:53")
	for range 2 {
		q := question(t, "a.example.", dnsmessage.TypeA)
		_, _ = c.Write(append([]byte{byte(len(q) >> 8), byte(len(q))}, q...))
		size := make([]byte, 2)
		if _, err := io.ReadFull(c, size); err != nil {
			t.Fatal(err)
		}
		reply := make([]byte, int(size[0])<<8|int(size[1]))
		if _, err := io.ReadFull(c, reply); err != nil {
			t.Fatal(err)
		}
		if code, addrs := parse(t, reply); code != 0 || len(addrs) != 1 {
			t.Errorf("%v %v", code, addrs)
		}
	}
	if reached := w.Dialled(); len(reached) != 0 {
		t.Errorf("%v were connected to", reached)
	}
}

//guarantee:a-box-reaches-what-its-rules-name
func FuzzAnswer(f *testing.F) {
	f.Add(question(f, "a.example.", dnsmessage.TypeA))
	f.Add(question(f, "x.b.example.", dnsmessage.TypeAAAA))
	f.Add([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 0x0c, 0, 1, 0, 1})
	r := rules(f, restricted("a.example", "*.b.example"))
	f.Fuzz(func(t *testing.T, q []byte) {
		n := newNames(16)
		reply, _, err := answer(r, n, q)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil || !m.Response || len(reply) > 512 || len(m.Answers) > 1 {
			t.Fatalf("%x is answered with %x: %v", q, reply, err)
		}
		for name := range n.byName {
			if !r.Knows(name).Allowed {
				t.Fatalf("%x gave %q an address", q, name)
			}
		}
	})
}
