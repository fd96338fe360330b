package guard

import (
	"os"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func TestRuntimesAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command  string
		runtimes string
		refused  bool
	}{
		{"python3 a.py", "", false},
		{"python3 a.py", "python", false},
		{"python3 a.py", "node", true},
		{"python a.py", "node bash", true},
		{"python3.12 -V", "node", true},
		{"pip install x", "node", true},
		{"pip3 install x", "node", true},
		{"/usr/bin/python3 a.py", "node", true},
		{"env A=b python3 a.py", "node", true},
		{"sudo -u x node a.js", "python", true},
		{"node a.js", "python", true},
		{"npm ci && npm test", "python", true},
		{"npx tsc", "python", true},
		{"yarn", "python", true},
		{"pnpm i", "python", true},
		{"npm ci", "python node", false},
		{"x=$(node -v)", "python", true},
		{"bash -c 'python3 a.py'", "node", true},
		{"find . -name '*.py' -exec python3 {} ;", "node", true},
		{"command -v python3 || true", "node", false},
		{"which python3 node", "bash", false},
		{"echo python3; ls node; grep npm package.json", "bash", false},
		{"pipenv run x; pythonic; nodemon", "bash", false},
		{"./python/run; cat python3", "bash", false},
		{"node() { echo mine; }; node", "python", false},
		{"go build", "python", false},
	} {
		r := Check(c.command, schemas.GuardDurable, strings.Fields(c.runtimes))
		if refused := r != nil && r.Rule == Runtime; refused != c.refused || (r != nil) != c.refused {
			t.Errorf("%q with runtimes %q: %+v, refused want %v", c.command, c.runtimes, r, c.refused)
		}
	}
}

func TestARefusalNamesPolicyCauseAndRemedy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command string
		policy  schemas.GuardPolicy
		want    string
	}{
		{
			"echo x > /etc/hosts", "",
			"refused by the bash guard (durable): it would write to /etc/hosts, outside the workspace, where nothing is kept. " +
				"Write below the workspace by a relative path, or what need not stay to /tmp.",
		},
		{
			"cd /etc && touch hosts", schemas.GuardDurable,
			"refused by the bash guard (durable): it would write to hosts (/etc/hosts), outside the workspace, where nothing is kept. " +
				"Write below the workspace by a relative path, or what need not stay to /tmp.",
		},
		{
			"find / -name x", schemas.GuardDurable,
			"refused by the bash guard (durable): find would walk over the whole filesystem. Search in the workspace: begin at . or at one of " +
				"its folders.",
		},
		{
			"cd ..", schemas.GuardStrict,
			"refused by the bash guard (strict): cd .. leaves the workspace. Stay in the workspace: commands begin in its root.",
		},
		{
			"cat /etc/hosts", schemas.GuardStrict,
			"refused by the bash guard (strict): /etc/hosts is outside the workspace. Use paths relative to the workspace, or /tmp.",
		},
		{
			"cat ../x", schemas.GuardStrict,
			"refused by the bash guard (strict): ../x leaves the workspace. Use paths below the workspace.",
		},
	} {
		r := Check(c.command, c.policy, nil)
		if r == nil || r.Text != c.want {
			t.Errorf("%q: got %+v\nwant %s", c.command, r, c.want)
		}
	}
	long := Check("touch /"+strings.Repeat("é", 5000), "", nil)
	if long == nil || len(long.Text) > 500 {
		t.Errorf("a long path makes the refusal long: %+v", long)
	}
}

// TestNestingIsBounded checks that the parser's stack is limited: otherwise a stack overflow would end the process.
func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ open, middle, shut string }{
		{"(", "ls", ")"}, {"$(", "ls", ")"}, {"{ ", "ls;", "}; "}, {"((", "1", "))"}, {"$((1+", "1", "))"}, {"${a:-", "b", "}"},
		{"\"$(", "ls", ")\""}, {"<(", "ls", ")"}, {"if ", "ls", "; then ls; fi"}, {"while ", "ls", "; do ls; done"}, {"f() ", "{ ls; }", ""},
		{"time ", "ls", ""}, {"case x in x) ", "ls", ";; esac"}, {"coproc ", "ls", ""}, {"x[", "1", "]=1"},
		{"if ls; then ls; elif ", "ls; then ls; fi", ""},
		{"ls | ", "ls", ""}, {"ls && ", "ls", ""}, {"ls || ", "ls", ""}, {"ls; ", "ls", ""}, {"ls & ", "ls", ""},
		{"`", "ls", "`"}, {"ls\n", "ls", ""},
		{">a ", "ls", ""}, {"a=b ", "ls", ""}, {"ls ", "ls", ""}, {"[[ a == a && ", "a", " ]]"},
		{"[[ ! ( ", "-f a", " ) ]]"}, {"echo $((", "1", "))"},
		{"eval ", "ls", ""}, {"sudo ", "ls", ""}, {"find -exec ", "ls", ""}, {"pushd a\n", "ls", ""}, {"cd a\n", "ls", ""},
		{"cd abc\necho $PWD$PWD\n", "ls", ""}, {"$PWD", "", ""}, {"f() { f; }; ", "f", ""}, {"bash -c ", "ls", ""}, {"trap ", "ls", ""},
		{"xargs ", "ls", ""}, {"! ", "ls", ""}, {"@(", "a", ")"}, {"{a,", "b", "}"}, {"../", "x", ""},
	} {
		n := maxLength / (len(c.open) + len(c.shut) + 1)
		text := strings.Repeat(c.open, n) + c.middle + strings.Repeat(c.shut, n)
		for _, p := range schemas.GuardPolicies() {
			_ = Check(text, p, []string{"python"})
		}
		for _, joined := range []string{"[[ " + strings.Repeat("a == a && ", n) + "a ]]", "(( " + strings.Repeat("1+", n) + "1 ))",
			"echo $((" + strings.Repeat("1*", n) + "1))"} {
			if c.open == "(" {
				_ = Check(joined, schemas.GuardStrict, nil)
			}
		}
	}
}

func TestNestingAsPeopleWriteIsFollowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		open, shut string
		depth      int
	}{{"(", ")", 40}, {"$(", ")", 40}, {"{ ", "; }", 40}, {"if true; then ", "; fi", 40}, {"for i in a; do ", "; done", 40}} {
		text := strings.Repeat(c.open, c.depth) + "touch /etc/a" + strings.Repeat(c.shut, c.depth)
		if c.open == "(" {
			text = strings.Repeat("( ", c.depth) + "touch /etc/a" + strings.Repeat(")", c.depth)
		}
		if r := Check(text, schemas.GuardDurable, nil); r == nil {
			t.Errorf("%d times %q hides a write", c.depth, c.open)
		}
	}
	inner := "touch /etc/a"
	for range maxNested {
		inner = "eval " + quote(inner)
	}
	if Check(inner, schemas.GuardDurable, nil) == nil {
		t.Errorf("%d scripts in one another hide a write", maxNested)
	}
	for range 2 {
		inner = "eval " + quote(inner)
	}
	if r := Check(inner, schemas.GuardDurable, nil); r != nil {
		t.Errorf("more than %d scripts in one another are followed: %+v", maxNested, r)
	}
}

// TestTheGuideSaysWhatTheGuardSays checks the table of commands in the guide.
func TestTheGuideSaysWhatTheGuardSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/guides/guard.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "| `") || cells[0] == "| `strict`" {
			continue
		}
		n++
		word := func(cell string) string { return strings.Replace(strings.Trim(cell, "|` "), "passes", "pass", 1) }
		command := strings.Trim(cells[0], "|` ")
		for i, p := range []schemas.GuardPolicy{schemas.GuardStrict, schemas.GuardDurable} {
			if is := ruleOf(command, p); is != word(cells[i+1]) {
				t.Errorf("the guide says of %q under %s: %s; the guard says %s", command, p, word(cells[i+1]), is)
			}
		}
	}
	if n < 5 {
		t.Errorf("%d commands in the guide's table, want more", n)
	}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func TestLongCommandsAreLetThrough(t *testing.T) {
	t.Parallel()
	tail := "\ntouch /etc/a"
	fits := "cat > a.txt <<'END'\n" + strings.Repeat("text\n", 50000) + "END" + tail
	if Check(fits, schemas.GuardDurable, nil) == nil {
		t.Error("a write after a here-document of 250 KB is not seen")
	}
	if r := Check(strings.Repeat("#", maxLength)+tail, schemas.GuardDurable, nil); r != nil {
		t.Errorf("a command above the limit is looked at: %+v", r)
	}
}

func FuzzCheck(f *testing.F) {
	corpus(f, func(_, _, command, _ string) { f.Add(command) })
	f.Fuzz(func(t *testing.T, command string) {
		for _, p := range schemas.GuardPolicies() {
			r := Check(command, p, []string{"node"})
			again := Check(command, p, []string{"node"})
			if (r == nil) != (again == nil) || r != nil && *r != *again {
				t.Fatalf("%s says %v, then %v", p, r, again)
			}
			if r != nil && (r.Rule == "" || len(r.Text) > 1000 || p == schemas.GuardOff) {
				t.Fatalf("%s: %+v", p, r)
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	const command = "cd src && go build ./... 2>&1 | tee build.log && cp -r out/* ../dist/ && find . -name '*.go' -exec grep -l TODO {} +"
	for b.Loop() {
		_ = Check(command, schemas.GuardStrict, nil)
	}
}
