package inbound

import (
	"strings"
	"testing"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	const approval = "appr_01K0000000000000000000000"
	open := schemas.ChatChannel{Kind: "telegram", Places: []string{"42"}, Settings: map[string]string{"run": "true"}}
	named := open
	named.Users = []string{"7"}
	closed := open
	closed.Places, closed.Settings = nil, nil
	everywhere := closed
	everywhere.Places = []string{Any}
	text := func(s string) channel.Inbound {
		return channel.Inbound{Kind: channel.Text, Event: "e", Conversation: "c", Place: "42", User: "7", Text: s}
	}
	from := func(user string, in channel.Inbound) channel.Inbound { in.User = user; return in }
	press := func(data string) channel.Inbound {
		in := text("")
		in.Kind, in.Data = channel.Pressed, data
		return in
	}
	for name, c := range map[string]struct {
		record schemas.ChatChannel
		in     channel.Inbound
		want   Step
	}{
		"a handshake":    {closed, channel.Inbound{Kind: channel.Handshake}, Step{Kind: Greet}},
		"nothing for us": {open, channel.Inbound{Kind: channel.Ignored, Why: "a bot"}, Step{Kind: Ignore, Why: "a bot"}},
		"without an id": {open, channel.Inbound{Kind: channel.Text, Text: "a", Place: "42"},
			Step{Kind: Ignore, Why: "it has no id or no place"}},
		"no places at all":        {closed, text("a"), Step{Kind: Ignore, Why: "its place is not one of the channel's"}},
		"all places":              {everywhere, text("a"), Step{Kind: Deliver}},
		"a text":                  {open, text("a"), Step{Kind: Deliver}},
		"nothing but spaces":      {open, text(" \n"), Step{Kind: Ignore, Why: "it says nothing"}},
		"of a user":               {named, text("a"), Step{Kind: Deliver}},
		"of somebody else":        {named, from("8", text("a")), Step{Kind: Ignore, Why: "its writer is not one of the channel's users"}},
		"of nobody":               {named, from("", text("a")), Step{Kind: Ignore, Why: "its writer is not one of the channel's users"}},
		"new":                     {open, text(" /NEW "), Step{Kind: Command, Command: New}},
		"with a name":             {open, text("/status@my_bot"), Step{Kind: Command, Command: Status}},
		"not ours":                {open, text("/etc/passwd is a file"), Step{Kind: Deliver}},
		"run":                     {open, text("/run  ls -l\nwc"), Step{Kind: Command, Command: Run, Rest: "ls -l\nwc"}},
		"run where it is not on":  {everywhere, text("/run ls"), Step{Kind: Deliver}},
		"approve":                 {named, text("/approve " + approval), Step{Kind: Answer, Approval: approval, Approved: true}},
		"deny":                    {named, text("/deny " + approval), Step{Kind: Answer, Approval: approval}},
		"approve where anybody":   {open, text("/approve " + approval), Step{Kind: Command, Command: notAllowed}},
		"approve nothing":         {named, text("/approve"), Step{Kind: Command, Command: questions}},
		"approve no approval":     {named, text("/approve that"), Step{Kind: Command, Command: Help}},
		"a button":                {named, press("approve:" + approval), Step{Kind: Answer, Approval: approval, Approved: true}},
		"a button, where anybody": {open, press("deny:" + approval), Step{Kind: Command, Command: notAllowed}},
		"a button of others":      {named, press("vote:1"), Step{Kind: Ignore, Why: "its button is none of ours"}},
	} {
		if got := Decide(c.record, c.in); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Whatever is written and pressed, only a named person answers an approval, and nothing of a place that is not listed counts.
//
//guarantee:a-message-of-a-chat-counts-once
func FuzzDecide(f *testing.F) {
	f.Add("/approve appr_1", "approve:appr_1", "7", "42", true)
	f.Add("/run rm -rf /", "", "", "", false)
	f.Fuzz(func(t *testing.T, text, data, user, place string, pressed bool) {
		c := schemas.ChatChannel{Places: []string{"42"}, Users: []string{"7"}}
		in := channel.Inbound{Kind: channel.Text, Event: "e", Conversation: "c", Place: place, User: user, Text: text, Data: data}
		if pressed {
			in.Kind = channel.Pressed
		}
		switch s := Decide(c, in); {
		case (place != "42" || user != "7") && s.Kind != Ignore:
			t.Errorf("%q by %q in %q counts: %+v", text, user, place, s)
		case s.Kind == Answer && s.Approval.Validate() != nil:
			t.Errorf("an answer to %q", s.Approval)
		case s.Command == Run:
			t.Error("it runs a command, which is off")
		}
	})
}

func TestNamesOfChats(t *testing.T) {
	t.Parallel()
	seen := map[schemas.ConversationID]string{}
	for _, place := range []string{
		"tg:1", "tg:2", "tg:1#2", "tg:1_2", "a b", "a\tb", "a_b", strings.Repeat("x", 500), strings.Repeat("x", 501), "ä", "ö",
	} {
		for _, c := range []schemas.ChannelID{"chan_1", "chan_2"} {
			name := schemas.ChatName(c, place)
			if err := name.Validate(); err != nil {
				t.Errorf("%q: %v", place, err)
			}
			if other, taken := seen[name]; taken {
				t.Errorf("%q and %q are both %s", place, other, name)
			}
			seen[name] = place
			later := schemas.Chat{Name: name, Begun: 12}.Conversation()
			if schemas.ChatKey("acct_1", name) != schemas.ChatKey("acct_1", later) {
				t.Errorf("%q: a new conversation is of another chat", place)
			}
		}
	}
	if got := schemas.ChatName("chan_1", "tg:-100123/7"); got != "tg:-100123/7@chan_1" {
		t.Errorf("a plain place is %q", got)
	}
}
