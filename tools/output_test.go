package tools_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools"
)

// TestBashCountsWhatIsNotText runs commands by a provider, which gets their output in pieces and cuts it at a limit.
func TestBashCountsWhatIsNotText(t *testing.T) {
	t.Parallel()
	p := providertest.NewBare(t.TempDir())
	const (
		limit = 1001 // odd: it is reached within a character of two bytes
		halfs = `printf '\303'; sleep 0.05; printf '\251\n'; `
		many  = `s=$(printf 'é%.0s' $(seq 1000)); printf '\303'; sleep 0.05; printf '\251%s%s' "$s" "$s"`
	)
	for _, c := range []struct {
		name, command, want string
		count               int64
	}{
		{"a character in two pieces", halfs, "", 0},
		{"cut within characters", many, "", 0},
		{"bytes on both", halfs + `printf '\377\376\375'; printf '\303(' >&2`, "3 bytes of stdout and 1 byte of stderr were", 4},
		{"on the error output", halfs + `printf '\303(' >&2`, "1 byte of stderr was", 1},
		{"an end within a character", `printf 'x\342\202'`, "2 bytes of stdout were", 2},
		{"what was dropped", `printf '\377\n'; head -c 5000 /dev/zero | tr '\000' '\376' | cat - /dev/null; printf '\n%0900d\376' 1`,
			"in what is shown, 500 bytes of stdout were", 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			plan, err := tools.Compile(schemas.Call{ID: "call_1", Tool: schemas.ToolBash}, schemas.BashInput{Command: c.command})
			if err != nil {
				t.Fatal(err)
			}
			cmd := plan.Command()
			cmd.OutputLimit = limit
			var streamed strings.Builder
			var mu sync.Mutex
			cmd.Output = func(c providers.Chunk) {
				mu.Lock()
				defer mu.Unlock()
				streamed.Write(c.Data)
			}
			r, err := p.Run(t.Context(), cmd)
			if err != nil {
				t.Fatal(err)
			}
			rendered := plan.Render(r)
			text := rendered.Text
			const notText = "not UTF-8"
			switch {
			case c.want == "" && (strings.Contains(text, notText) || strings.Contains(text, "\uFFFD")):
				t.Errorf("bytes were lost: %s", text)
			case c.want != "" && (strings.Count(text, notText) != 1 || !strings.Contains(text, "\n["+c.want+" "+notText)):
				t.Errorf("it is not said that %s not text: %s", c.want, text)
			}
			if n := rendered.Output.InvalidBytes; n != c.count {
				t.Errorf("%d bytes are counted, want %d", n, c.count)
			}
			if strings.Contains(streamed.String(), notText) {
				t.Errorf("the note is in the streamed output: %q", streamed.String())
			}
		})
	}
}

// TestNoticesOfAProvider: a provider's notices about a command are in the result, and in its text after the exit code.
func TestNoticesOfAProvider(t *testing.T) {
	t.Parallel()
	plan, err := tools.Compile(schemas.Call{ID: "call_1", Tool: schemas.ToolBash}, schemas.BashInput{Command: "true"})
	if err != nil {
		t.Fatal(err)
	}
	r := plan.Render(providers.Result{Started: true, Stdout: []byte("x\n"), Notices: []string{"nothing can be reached"}})
	if len(r.Notices) != 1 || !strings.HasSuffix(r.Text, "[exit code 0]\n[nothing can be reached]") || r.Output.Stderr != "" {
		t.Errorf("%q, %+v", r.Text, r.Notices)
	}
}
