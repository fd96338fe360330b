package bucket

import "testing"

func TestErrorsOfOneObject(t *testing.T) {
	for _, c := range []struct {
		status int
		word   string
		want   bool
	}{
		{403, "InvalidObjectState", true}, {403, "AccessDenied", true}, {403, "Forbidden", true}, {403, "", true}, {400, "BadRequest", true},
		{400, "KMS.DisabledException", true}, {400, "InvalidRequest", true}, {400, "KeyTooLongError", true},
		{403, "InvalidAccessKeyId", false}, {403, "SignatureDoesNotMatch", false}, {400, "ExpiredToken", false}, {400, "InvalidToken", false},
		{403, "RequestTimeTooSkewed", false}, {403, "AllAccessDisabled", false}, {404, "NoSuchBucket", false}, {301, "PermanentRedirect", false},
		{400, "AuthorizationHeaderMalformed", false}, {404, "NoSuchKey", false}, {412, "PreconditionFailed", false}, {503, "SlowDown", false},
		{500, "", false}, {0, "", false},
	} {
		if got := ofObject(c.status, c.word); got != c.want {
			t.Errorf("%d %s: got %t", c.status, c.word, got)
		}
	}
	b := &Bucket{prefix: "w/"}
	if _, err := b.key("../x"); !OneObject(err) {
		t.Errorf("a name that can be no key stops all: %v", err)
	}
	if OneObject(nil) {
		t.Error("no error is one")
	}
}
