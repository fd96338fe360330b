package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestOnlyWhatIsUnchangedIsApplied: `sandjet dev` applies the watched files when they differ from what was last applied and have stayed
// the same for one tick. Each row is one tick: the content of the files, and whether it is to be applied.
func TestOnlyWhatIsUnchangedIsApplied(t *testing.T) {
	t.Parallel()
	var text string
	var broken error
	w := &watched{read: func() ([]byte, error) { return []byte(text), broken }}
	for i, tick := range []struct {
		text   string
		broken error
		again  bool
		want   bool
	}{
		{text: "a", want: true}, {text: "a"}, {text: "b"}, {text: "c"}, {text: "c", want: true}, {text: "c"},
		{text: "c", again: true, want: true}, {text: "c"},
		{text: "d"}, {text: "c"}, {text: "c"}, // it was undone
		{broken: errors.New("away")}, {broken: errors.New("away"), want: true}, {broken: errors.New("away")},
		{text: "c"}, {text: "c", want: true},
	} {
		text, broken = tick.text, tick.broken
		if tick.again {
			w.again = true
		}
		if got := w.changed(); got != tick.want {
			t.Errorf("tick %d: %t", i, got)
		}
	}
}

func TestAnswersAreColoredForTerminalsOnly(t *testing.T) {
	t.Parallel()
	a := schemas.ManifestAnswer{
		Changes: []schemas.ManifestChange{
			{Action: schemas.ActionCreate, Kind: schemas.KindAgent, Name: "g"}, {Action: schemas.ActionNone, Kind: schemas.KindAgent, Name: "h"},
			{Action: schemas.ActionUpdate, Kind: schemas.KindSandbox, Name: "\x1b[2J", Adopted: true,
				Fields: []schemas.FieldChange{{Path: "config.timeout", To: []byte("3")}}},
		},
		Warnings: schemas.ManifestWarnings{MissingEnv: []string{"A"}, Notes: []string{"n"}},
	}
	const want = "+ agent g\n~ sandbox \uFFFD[2J (made by hand: adopted)\n    config.timeout: (none) → 3\n" +
		"1 to create, 1 to change, 1 unchanged.\nNote: n.\nMissing: A, which a sandbox names: sandjet variables set A\n"
	if got := answerText(a, false); got != want {
		t.Errorf("it says\n%s", got)
	}
	if got := answerText(a, true); !strings.HasPrefix(got, "\x1b[32m+ agent g\x1b[0m\n") {
		t.Errorf("it says\n%q", got)
	}
	if isTerminal(strings.NewReader("")) {
		t.Error("a text is no terminal")
	}
}
