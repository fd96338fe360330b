package daytona

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func TestExits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\nsandjet-exit 0\n":           "{0 } true",
		"a\nb\n\nsandjet-exit 7\n":     "{7 a\nb\n} true",
		"a\nsandjet-exit 0\nmore\n":    "{0 a\nsandjet-exit 0} false",
		"":                             "{0 } false",
		"sandjet-exit x":               "{0 } false",
		"no newline\nsandjet-exit 127": "{127 no newline} true",
	} {
		e, ok := exitOf(text)
		if got := fmt.Sprint(e, ok); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzExits: whatever a command prints, the shell's last word is taken off it and nothing else.
func FuzzExits(f *testing.F) {
	f.Add("text")
	f.Add("sandjet-exit 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		if e, ok := exitOf(text + "\nsandjet-exit 3\n"); !ok || e.Exit != 3 || e.Result != text {
			t.Errorf("%q was taken for %+v, %v", text, e, ok)
		}
	})
}

// TestReasonsHaveNoSecret: what the service says of a sandbox that has failed is for users, and may repeat what it was asked with.
func TestReasonsHaveNoSecret(t *testing.T) {
	t.Parallel()
	const key = "dtn_0123456789abcdef"
	p, err := Open(Options{Key: key, APIURL: "https://api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.awake(t.Context(), sandbox{State: stateError, Reason: "the registry refuses\n" + key})
	if schemas.CodeOf(err) != schemas.Unavailable || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "the registry refuses [") {
		t.Errorf("got %v", err)
	}
}
