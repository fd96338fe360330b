package guard

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandjet/sandjet/schemas"
)

var update = flag.Bool("update", false, "write what the guard says into testdata")

// corpus calls f with each command in testdata and the line with its expected verdict.
func corpus(tb testing.TB, f func(file, name, command, want string)) {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		for _, c := range a.Files {
			command, want, found := strings.Cut(string(c.Data), "\n=> ")
			if !found {
				tb.Fatalf("%s %s has no verdict: its last line begins with =>", file, c.Name)
			}
			f(file, c.Name, command, strings.TrimSpace(want))
		}
	}
}

func ruleOf(command string, p schemas.GuardPolicy) string {
	if r := Check(command, p, nil); r != nil {
		return string(r.Rule)
	}
	return "pass"
}

func TestCorpus(t *testing.T) {
	t.Parallel()
	n, got := 0, map[string]string{}
	corpus(t, func(file, name, command, want string) {
		n++
		is := fmt.Sprintf("strict: %s, durable: %s", ruleOf(command, schemas.GuardStrict), ruleOf(command, schemas.GuardDurable))
		got[file+name] = is
		if is != want && !*update {
			t.Errorf("%s %s:\n%s\ngot  %s\nwant %s", file, name, command, is, want)
		}
		if r := Check(command, schemas.GuardOff, []string{"none"}); r != nil {
			t.Errorf("%s %s: off refuses it: %s", file, name, r.Text)
		}
		if zero, durable := ruleOf(command, ""), ruleOf(command, schemas.GuardDurable); zero != durable {
			t.Errorf("%s %s: the zero policy says %s, durable says %s", file, name, zero, durable)
		}
	})
	if n < 120 {
		t.Errorf("%d commands in the corpus, want 120 at least", n)
	}
	if *update {
		rewrite(t, got)
	}
}

// rewrite writes the verdicts into the corpus.
func rewrite(t *testing.T, got map[string]string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range a.Files {
			command, _, _ := strings.Cut(string(c.Data), "\n=> ")
			a.Files[i].Data = []byte(command + "\n=> " + got[file+c.Name] + "\n")
		}
		if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
