package natsapi

import (
	"strings"
	"testing"
)

//guarantee:tenants-are-isolated
func TestReplyInbox(t *testing.T) {
	for inbox, ok := range map[string]bool{
		"":                                   true,
		"_INBOX.a.b":                         true,
		"_INBOX_acct_a.x":                    true,
		"_INBOX_acct_b.x":                    false,
		"sandjet.reply.acct_a.x":             true,
		"sandjet.reply.acct_b.x":             false,
		"_INBOX.":                            false,
		"_INBOX.*":                           false,
		"_INBOX.>":                           false,
		"_INBOX.a..b":                        false,
		"_INBOX.a b":                         false,
		"_INBOX.a\r\nb":                      false,
		"sandjet.calls.auto":                 false,
		"$SYS.x":                             false,
		"_INBOX." + strings.Repeat("x", 300): false,
	} {
		got, err := checkInbox(inbox, "acct_a")
		if (err == nil) != ok {
			t.Errorf("%q: %v", inbox, err)
		}
		if err == nil && got != inbox {
			t.Errorf("%q became %q", inbox, got)
		}
	}
}
