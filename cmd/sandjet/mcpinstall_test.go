package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// mcpInstall runs the command as a user with a folder and a home.
func mcpInstall(t *testing.T, dir, home string, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sandjet", append([]string{"mcp", "install"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(withoutSettings(os.Environ()), "HOME="+home, "SANDJET_KEY=sk_secret")
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// mcpFiles are the files below folders, by their paths.
func mcpFiles(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			files[path] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestEachClientOfMCPIsSetUp: for each client, the entry that is printed is also the one that is written, to the file that the client
// reads. It contains no key. Installing twice changes nothing more, and the rest of an existing file stays as it is.
func TestEachClientOfMCPIsSetUp(t *testing.T) {
	t.Parallel()
	const gateway = "https://sandjet.example.com"
	jsonFile := func(key string) [2]string { // what was there, and where the entry goes in that
		return [2]string{"{\n\t\"zzz\" : 1e2,\n\t\"" + key + "\": {\n\t\t\"other\": {\"command\": \"x\",  \"args\": []}HERE\n\t},\n\t\"url\": \"a\\u0026b\"\n}", ",\n\t\t\"sandjet\": "}
	}
	for client, c := range map[string]struct {
		file   string // from the folder, or from HOME
		local  string // what an entry has for a program
		remote string // and for a gateway elsewhere; empty: refused
		was    [2]string
	}{
		"claude-code":    {".mcp.json", `"type": "stdio"`, `"Authorization": "Bearer ${SANDJET_KEY}"`, jsonFile("mcpServers")},
		"claude-desktop": {"HOME/.config/Claude/claude_desktop_config.json", `"command": `, "", jsonFile("mcpServers")},
		"cursor":         {".cursor/mcp.json", `"command": `, `"Authorization": "Bearer ${env:SANDJET_KEY}"`, jsonFile("mcpServers")},
		"vscode":         {".vscode/mcp.json", `"type": "stdio"`, `"type": "http"`, jsonFile("servers")},
		"codex": {"HOME/.codex/config.toml", "command = ", `bearer_token_env_var = "SANDJET_KEY"`,
			[2]string{"# mine\nmodel = \"x\" # why\n[mcp_servers.other]\nargs = [ \"]\", # not the end\n  'b' ]HERE\n", "\n[mcp_servers.sandjet]\n"}},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			dir, home := t.TempDir(), t.TempDir()
			file := filepath.Join(dir, c.file)
			if rest, ok := strings.CutPrefix(c.file, "HOME/"); ok {
				file = filepath.Join(home, rest)
			}
			run := func(args ...string) string {
				t.Helper()
				out, err := mcpInstall(t, dir, home, append([]string{client}, args...)...)
				if err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
				return out
			}
			printed := run()
			if files := mcpFiles(t, dir, home); len(files) > 0 {
				t.Errorf("it wrote %v", files)
			}
			snippet, _, ok := strings.Cut(printed, "\nPut this into "+file+",")
			if !ok || !strings.Contains(snippet, c.local) || !strings.Contains(snippet, filepath.Join(dir, ".sandjet")) {
				t.Errorf("it prints %s", printed)
			}
			run("--write")
			if got := mcpFiles(t, dir, home); len(got) != 1 || got[file] != snippet {
				t.Errorf("it wrote %q, and prints %q", got, snippet)
			}
			before, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if out := run("--write"); !strings.Contains(out, "already") {
				t.Errorf("again: %s", out)
			}
			after, err := os.Stat(file)
			if got := mcpFiles(t, dir, home); err != nil || len(got) != 1 || got[file] != snippet || !os.SameFile(before, after) ||
				!before.ModTime().Equal(after.ModTime()) {
				t.Errorf("again it changed %v, %v", got, err)
			}

			// Among what was there, in a file that is the user's alone.
			was := strings.Replace(c.was[0], "HERE", "", 1)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(was), 0o600); err != nil {
				t.Fatal(err)
			}
			run("--write")
			first := mcpFiles(t, dir, home)
			begin, end, _ := strings.Cut(c.was[0], "HERE")
			if client == "codex" {
				begin, end = begin+end, ""
			}
			entry := strings.TrimSuffix(strings.TrimPrefix(first[file], begin), end)
			if !strings.HasPrefix(entry, c.was[1]) || begin+entry+end != first[file] || first[file+".before-sandjet"] != was {
				t.Errorf("it made %q\nof %q, and kept %q", first[file], was, first[file+".before-sandjet"])
			}
			for name := range first {
				if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s: %v %v", name, info, err)
				}
			}
			run("--write")
			if got := mcpFiles(t, dir, home); !reflect.DeepEqual(got, first) {
				t.Errorf("again it is %q", got)
			}

			// A gateway elsewhere, and back.
			out, err := mcpInstall(t, dir, home, client, "--write", "--url", gateway, "--agent", "reviewer")
			got := mcpFiles(t, dir, home)
			switch {
			case c.remote == "":
				if err == nil || !strings.Contains(out, "starts programs only") || !reflect.DeepEqual(got, first) {
					t.Errorf("elsewhere: %v %s", err, out)
				}
				return
			case err != nil || !strings.Contains(got[file], c.remote) || !strings.Contains(got[file], gateway+"/mcp?agent=reviewer") ||
				strings.Contains(got[file], "command =") || !strings.HasPrefix(got[file], begin) || !strings.HasSuffix(got[file], end):
				t.Errorf("elsewhere: %v %s: %s", err, out, got[file])
			}
			for name, text := range got {
				if strings.Contains(text, "sk_secret") {
					t.Errorf("the key is in %s", name)
				}
			}
			run("--write")
			if got := mcpFiles(t, dir, home)[file]; client != "codex" && got != first[file] || !strings.Contains(got, c.local) ||
				strings.Contains(got, gateway) {
				t.Errorf("back it is %q", got)
			}
		})
	}
}

// TestWhatIsNotUnderstoodIsNotChanged: a settings file that cannot be parsed is not changed; the error says what to do instead.
func TestWhatIsNotUnderstoodIsNotChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct{ client, was, says string }{
		"a comment":          {"vscode", "{\"servers\": // mine\n{}}", "it is not JSON"},
		"half":               {"cursor", `{"mcpServers": {`, "it is not JSON"},
		"a list":             {"claude-code", `[]`, "it is not a JSON object"},
		"servers in a list":  {"claude-desktop", `{"mcpServers": []}`, "mcpServers: it is not a JSON object"},
		"twice":              {"cursor", `{"mcpServers": {}, "mcpServers": {}}`, `it has "mcpServers" twice`},
		"two":                {"cursor", `{} {}`, "it has more than a JSON object"},
		"no TOML":            {"codex", "model x", "it is not TOML"},
		"an open string":     {"codex", "model = \"x", "a string has no end"},
		"an open list":       {"codex", "args = [\n", "a list or a table has no end"},
		"an inline table":    {"codex", "[mcp_servers]\nsandjet = {command = \"x\"}\n", "in another way"},
		"dotted keys":        {"codex", "mcp_servers.sandjet.command = \"x\"\n", "in another way"},
		"all inline":         {"codex", "mcp_servers = {}\n", "in another way"},
		"a list of tables":   {"codex", "[[mcp_servers.sandjet]]\n", "in another way"},
		"a table twice":      {"codex", "[mcp_servers.sandjet]\n[mcp_servers.\"sandjet\"]\n", "in another way"},
		"a password":         {"cursor", "{}", "has a name or a password in it"},
		"an unfinished name": {"codex", "[mcp_servers.sandjet\n", "the name of a table has no end"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c.was), 0o600); err != nil {
			t.Fatal(err)
		}
		install := &mcpInstallCommand{Client: c.client, Write: true, File: file, dir: dir}
		remedy := "add by hand what \"sandjet mcp install " + c.client + "\" prints"
		if name == "a password" {
			install.URL, remedy = "https://me:secret@sandjet.example.com", "the key is in SANDJET_KEY"
		}
		var out bytes.Buffer
		err := install.Run(t.Context(), terminal{out: &out})
		b, rerr := os.ReadFile(file)
		if err == nil || rerr != nil || string(b) != c.was || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: %v %s: %q %v", name, err, &out, b, rerr)
		}
		if _, err := os.Stat(file + ".before-sandjet"); err == nil {
			t.Errorf("%s: a copy was kept of what was not changed", name)
		}
	}
}

// TestATableOfCodexIsBroughtUpToDate: in the TOML file of Codex only the keys that Sandjet sets are changed, wherever the table is in the
// file and however its header is written.
func TestATableOfCodexIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	values := []tomlValue{{"command", `"sandjet"`}, {"args", `["mcp", "--up"]`}, {"url", ""}}
	for was, want := range map[string]string{
		"[mcp_servers.sandjet]\n": "[mcp_servers.sandjet]\ncommand = \"sandjet\"\nargs = [\"mcp\", \"--up\"]\n",
		"[mcp_servers.sandjet]":   "[mcp_servers.sandjet]\ncommand = \"sandjet\"\nargs = [\"mcp\", \"--up\"]\n",
		"[mcp_servers.sandjet]\ncommand = \"old\" # mine\nargs = [ # also\n \"a]\", \"\"\"\n\"\"\" ]\nstartup_timeout_sec = 9\n\n[x]\nargs = 1\n": "[mcp_servers.sandjet]\n" +
			"command = \"sandjet\" # mine\nargs = [\"mcp\", \"--up\"]\nstartup_timeout_sec = 9\n\n[x]\nargs = 1\n",
		"[ mcp_servers . \"sandjet\" ] # x\r\n  url = 'https://x'\r\n  'command' = \"sandjet\"\r\nargs=[\"mcp\" ,\"--up\",]\r\n[mcp_servers.sandjet.env]\r\nA = \"b\"\r\n": "[ mcp_servers . \"sandjet\" ] # x\r\n" +
			"  'command' = \"sandjet\"\r\nargs=[\"mcp\" ,\"--up\",]\r\n[mcp_servers.sandjet.env]\r\nA = \"b\"\r\n",
		"a = '''\n[mcp_servers.sandjet]\n'''": "a = '''\n[mcp_servers.sandjet]\n'''\n\n[mcp_servers.sandjet]\ncommand = \"sandjet\"\nargs = [\"mcp\", \"--up\"]\n",
	} {
		got, err := tomlWith(was, []string{"mcp_servers", "sandjet"}, values)
		if err != nil || got != want {
			t.Errorf("%q\nis made %q, %v\nand not  %q", was, got, err, want)
		}
	}
}

// TestAnEntryGoesIntoJSONAsItIsWritten: an entry that is added to a JSON file follows the file's indentation and line ends, and stays on
// one line if its surroundings do.
func TestAnEntryGoesIntoJSONAsItIsWritten(t *testing.T) {
	t.Parallel()
	for was, want := range map[string]string{
		"":                             "{\n  \"s\": {\n    \"e\": {\n      \"a\": 1\n    }\n  }\n}\n",
		"{}":                           "{\n  \"s\": {\n    \"e\": {\n      \"a\": 1\n    }\n  }\n}",
		"\xef\xbb\xbf{\"x\": 1}":       "\xef\xbb\xbf{\"x\": 1, \"s\": {\n  \"e\": {\n    \"a\": 1\n  }\n}}",
		"{\"s\":{}}":                   "{\"s\":{\n  \"e\": {\n    \"a\": 1\n  }\n}}",
		"{\"s\":{\"o\":2}}":            "{\"s\":{\"o\":2, \"e\": {\n  \"a\": 1\n}}}",
		"{\"s\":{\"e\": { \"a\":1 }}}": "{\"s\":{\"e\": { \"a\":1 }}}",
		"{\r\n\t\"s\": {\r\n\t\t\"e\": 5,\r\n\t\t\"o\": 2\r\n\t}\r\n}\r\n": "{\r\n\t\"s\": {\r\n\t\t\"e\": {\r\n\t\t\t\"a\": 1\r\n\t\t},\r\n\t\t\"o\": 2\r\n\t}\r\n}\r\n",
	} {
		got, err := jsonWith([]byte(was), "s", "e", map[string]int{"a": 1})
		if err != nil || string(got) != want {
			t.Errorf("%q\nis made %q, %v\nand not  %q", was, got, err, want)
		}
	}
}

// FuzzJSONWith: the result is JSON that has the new entry and everything that was there before. Adding the entry again changes nothing.
func FuzzJSONWith(f *testing.F) {
	f.Add([]byte(`{"zzz": 1, "s": {"e": {"a": [1]}, "o": "\u0026"}}`))
	f.Add([]byte("{\n\t\"s\": {}\n}"))
	f.Add([]byte("\xef\xbb\xbf"))
	f.Fuzz(func(t *testing.T, was []byte) {
		got, err := jsonWith(was, "s", "e", true)
		if err != nil {
			return
		}
		again, err := jsonWith(got, "s", "e", true)
		if err != nil || !bytes.Equal(got, again) {
			t.Fatalf("%q, again %q, %v", got, again, err)
		}
		parse := func(text []byte) (v map[string]any) {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
			if len(bytes.TrimSpace(text)) == 0 {
				return map[string]any{}
			}
			dec := json.NewDecoder(bytes.NewReader(text))
			dec.UseNumber() // any number of digits stays as it is
			if err := dec.Decode(&v); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			return v
		}
		want, is := parse(was), parse(got)
		servers, _ := want["s"].(map[string]any)
		if servers == nil {
			servers = map[string]any{}
		}
		servers["e"], want["s"] = true, servers
		if !reflect.DeepEqual(is, want) {
			t.Errorf("%q is made %q", was, got)
		}
	})
}

// FuzzTOMLWith: for any input the function returns. Setting the values again changes nothing, and nothing else of the file is lost.
func FuzzTOMLWith(f *testing.F) {
	f.Add("a = 1\n[mcp_servers.sandjet]\ncommand = \"x\"\nargs = [\n'a', # b\n]\n[[b]]\nc.d = {e = \"\"\"f\"\"\"}\n")
	f.Add("[\"mcp_servers\".sandjet]\nurl=1")
	f.Fuzz(func(t *testing.T, was string) {
		table := []string{"mcp_servers", "sandjet"}
		got, err := tomlWith(was, table, []tomlValue{{"command", `"x"`}, {"url", ""}})
		if err != nil {
			return
		}
		again, err := tomlWith(got, table, []tomlValue{{"command", `"x"`}, {"url", ""}})
		if err != nil || got != again {
			t.Fatalf("%q is made %q, again %q, %v", was, got, again, err)
		}
		if !strings.Contains(was, "sandjet") && !strings.HasPrefix(got, was) {
			t.Errorf("%q is made %q", was, got)
		}
	})
}
