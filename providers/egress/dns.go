package egress

import (
	"errors"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandjet/sandjet/internal/netguard"
)

const (
	answerTTL = 60 // seconds; the address stays for longer
	// longestQuestion is the most bytes of a question that are looked at.
	longestQuestion = 1232
)

// errNoQuestion says that a message is nothing that wants an answer.
var errNoQuestion = errors.New("no question for a name server")

// answer answers a DNS query from the rules alone, without asking a server, so that a query carries no data out. A name that is not
// allowed does not exist; an allowed one has one IPv4 address and no other records: no IPv6, and no keys that would hide the host of a
// connection. Refused is why the name does not exist. On an error there is no answer to send.
func answer(rules *Rules, names *names, question []byte) (reply []byte, refused *Refusal, err error) {
	var p dnsmessage.Parser
	if len(question) > longestQuestion {
		return nil, nil, errNoQuestion
	}
	h, err := p.Start(question)
	if err != nil || h.Response {
		return nil, nil, errNoQuestion
	}
	out := dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}
	if h.OpCode != 0 {
		out.RCode = dnsmessage.RCodeNotImplemented
		return build(out, nil, nil)
	}
	q, err := p.Question()
	if err != nil {
		out.RCode = dnsmessage.RCodeFormatError
		return build(out, nil, nil)
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		out.RCode = dnsmessage.RCodeFormatError
		return build(out, nil, nil)
	}
	host, err := netguard.ParseHost(q.Name.String())
	if err != nil || host.Name == "" || q.Class != dnsmessage.ClassINET {
		out.RCode = dnsmessage.RCodeNameError
		return build(out, &q, nil)
	}
	if v := rules.Knows(host.Name); !v.Allowed {
		out.RCode = dnsmessage.RCodeNameError
		reply, _, err = build(out, &q, nil)
		return reply, &Refusal{Name: host.Name, Rule: v.Rule, Text: v.Text}, err
	}
	if q.Type != dnsmessage.TypeA {
		return build(out, &q, nil)
	}
	a := dnsmessage.AResource{A: names.addr(host.Name).As4()}
	return build(out, &q, &a)
}

// build builds a DNS message.
func build(h dnsmessage.Header, q *dnsmessage.Question, a *dnsmessage.AResource) ([]byte, *Refusal, error) {
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), h)
	b.EnableCompression()
	err := b.StartQuestions()
	if q != nil {
		err = errors.Join(err, b.Question(*q))
	}
	if a != nil {
		err = errors.Join(err, b.StartAnswers(), b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: answerTTL}, *a))
	}
	if err != nil {
		return nil, nil, err
	}
	reply, err := b.Finish()
	return reply, nil, err
}
