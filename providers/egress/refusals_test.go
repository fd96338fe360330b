package egress

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestRefusalsAreRememberedOnce(t *testing.T) {
	w := newWorld(t)
	s := w.enter(restricted("a.example"), Limits{})
	for range 5 {
		s.ask("evil.test.", dnsmessage.TypeA)
	}
	if n := s.refused.Load(); n != 1 {
		t.Errorf("%d were told, want 1", n)
	}
	mark := s.relay.Mark()
	for i := range 100 {
		s.ask(fmt.Sprintf("n%d.evil.test.", i), dnsmessage.TypeA)
	}
	list, more := s.relay.Since(mark)
	if len(list) != mostRefusals || !more || list[len(list)-1].Name != "n99.evil.test" {
		t.Errorf("%d refusals, more %t", len(list), more)
	}
	mark = s.relay.Mark()
	if list, more = s.relay.Since(mark); len(list) != 0 || more {
		t.Errorf("%v %t after everything", list, more)
	}
	s.ask("n99.evil.test.", dnsmessage.TypeA)
	if list, _ = s.relay.Since(mark); len(list) != 1 {
		t.Errorf("%v: a known refusal that comes again is one", list)
	}
}

// TestNoticesSayAReasonOnce: curl asks for a host's addresses of both kinds and tries each; its user reads of it once.
func TestNoticesSayAReasonOnce(t *testing.T) {
	w := newWorld(t)
	s := w.enter(restricted("a.example"), Limits{})
	mark := s.relay.Mark()
	const text = "host a.example is allowed, but does not exist"
	for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
		s.relay.refusals.add(Refusal{Name: "a.example", Addr: netip.MustParseAddr(addr), Port: 443, Rule: RuleUnreachable, Text: text})
	}
	if got := string(s.relay.Notices(mark)); got != "sandjet: network: "+text+"\n" {
		t.Errorf("%q", got)
	}
	for i := range mostNotices {
		s.relay.refusals.add(Refusal{Name: fmt.Sprint(i), Rule: RuleUnreachable, Text: fmt.Sprint(i)})
	}
	if got := string(s.relay.Notices(mark)); strings.Count(got, "\n") != mostNotices+1 || !strings.HasSuffix(got, "more was refused\n") {
		t.Errorf("%q", got)
	}
}
