package guard

import (
	"strings"
	"sync"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// TestParsersAreUsedAgain: a parser's tree does not change when the parser is reused for other texts, valid and invalid, also
// concurrently.
func TestParsersAreUsedAgain(t *testing.T) {
	t.Parallel()
	printed := func(f *syntax.File) string {
		var b strings.Builder
		if err := syntax.NewPrinter().Print(&b, f); err != nil {
			t.Error(err)
		}
		return b.String()
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			const text = "echo one 'two three' >out && cat <<E\nwords\nE\n"
			tree := parse(text)
			before := printed(tree)
			for range 50 {
				if parse("if true; then") != nil || parse("cat <<E\nnever ended $(") != nil || parse(strings.Repeat("(", maxLength)) != nil {
					t.Error("what is no bash has a tree")
				}
				if again := printed(parse(text)); again != before {
					t.Errorf("%q became %q", before, again)
				}
				if parse("for i in a b c; do echo $i ${i%x} $((1+2)); done") == nil {
					t.Error("a loop has no tree")
				}
			}
			if after := printed(tree); after != before {
				t.Errorf("the first tree was %q and is %q", before, after)
			}
		})
	}
	all.Wait()
}
