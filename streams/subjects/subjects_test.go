package subjects_test

import (
	"testing"

	"github.com/sandjet/sandjet/streams/subjects"
)

func TestInboxSubject(t *testing.T) {
	for inbox, want := range map[string]string{
		"_INBOX.abc": "sandjet.inbox.acct_a.abc", "_INBOX.a.b": "sandjet.inbox.acct_a.a.b", "_INBOX_acct_a.x": "_INBOX_acct_a.x",
		"sandjet.reply.acct_a.x": "sandjet.reply.acct_a.x", "sandjet.reply.acct_b.x": "",
		"sandjet.reply.acct_a.": "", "sandjet.reply.acct_a.>": "",
		"": "", "_INBOX.": "", "_INBOX.*": "", "_INBOX.>": "", "_INBOX.a..b": "", "_INBOX_acct_b.x": "",
		"sandjet.calls.auto.acct_b": "", "_INBOX.a b": "",
	} {
		if got, err := subjects.InboxSubject("acct_a", inbox); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", inbox, got, err, want)
		}
	}
}
