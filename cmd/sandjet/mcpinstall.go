package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

type mcpInstallCommand struct {
	Client       string `arg:"" enum:"claude-code,claude-desktop,cursor,vscode,codex" help:"claude-code, claude-desktop, cursor, vscode or codex."`
	Write        bool   `use:"" help:"Write it into the client's file, keeping a copy of what was there beside it."`
	File         string `placeholder:"FILE" use:"" help:"The client's file. Default: the one of this folder, or of this user, that the client reads."`
	URL          string `name:"url" placeholder:"URL" use:"" help:"A gateway elsewhere, which the client asks by HTTP with the key in SANDJET_KEY. Default: everything in a process of its own."`
	Agent        string `placeholder:"NAME" use:"" help:"Agent that makes the calls (id or name). Default: all tools."`
	Workspace    string `short:"w" placeholder:"NAME" use:"" help:"Workspace with the files. Default: \"default\", or the agent's first."`
	Conversation string `short:"c" placeholder:"ID" use:"" help:"Conversation for the events of calls."`

	dir string
}

// Help returns the detailed help, for kong.
func (*mcpInstallCommand) Help() string {
	return `Says how a client program starts "sandjet mcp --up", or reaches a gateway elsewhere, and where that is to be put. With --write
it puts it there: an entry "sandjet" is added or replaced, everything else in the file stays byte for byte, and what was there
before is kept in a copy beside it, whose name ends in .before-sandjet; a copy that is there stays. Done twice, it changes
nothing. A key is never written: the file names the variable that has it.

Claude Code, Cursor and VS Code read a file of the folder that they are opened in; Claude Desktop and Codex one of the user.

Examples:
  sandjet mcp install claude-code --write
  sandjet mcp install cursor --agent reviewer
  sandjet mcp install codex --url https://sandjet.example.com --write`
}

// AfterApply is called by kong once everything is parsed.
func (c *mcpInstallCommand) AfterApply(root *cli) error {
	c.dir = clientDir(root.DataDir)
	return nil
}

// mcpHost is a client program: where its configuration file is, and how servers are written in it.
type mcpHost struct {
	file string // relative to the current folder, or with home to the user's
	home bool
	key  string // of the object with the servers in a JSON file; empty: the file is TOML
	kind bool   // a server has a field type
	env  string // how a header refers to the variable with the key; empty: the client does not speak HTTP
}

func mcpHosts() map[string]mcpHost {
	desktop := ".config/Claude/claude_desktop_config.json"
	if runtime.GOOS == "darwin" {
		desktop = "Library/Application Support/Claude/claude_desktop_config.json"
	}
	return map[string]mcpHost{
		"claude-code":    {file: ".mcp.json", key: "mcpServers", kind: true, env: "${SANDJET_KEY}"},
		"claude-desktop": {file: desktop, home: true, key: "mcpServers"},
		"cursor":         {file: ".cursor/mcp.json", key: "mcpServers", env: "${env:SANDJET_KEY}"},
		"vscode":         {file: ".vscode/mcp.json", key: "servers", kind: true, env: "${env:SANDJET_KEY}"},
		"codex":          {file: ".codex/config.toml", home: true, env: "SANDJET_KEY"},
	}
}

// mcpServer is the entry of a server in the files of clients.
type mcpServer struct {
	Type    string            `json:"type,omitzero"`
	Command string            `json:"command,omitzero"`
	Args    []string          `json:"args,omitzero"`
	URL     string            `json:"url,omitzero"`
	Headers map[string]string `json:"headers,omitzero"`
}

const mcpName = "sandjet" // name of the entry

// Run prints the entry and the file that it belongs in, or with --write writes it there.
func (c *mcpInstallCommand) Run(_ context.Context, t terminal) error {
	h := mcpHosts()[c.Client]
	server, err := c.server(h)
	if err != nil {
		return err
	}
	file, err := c.fileOf(h)
	if err != nil {
		return err
	}
	was, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return schemas.Errorf(schemas.Denied, "%v: name another file with --file", err)
	}
	if !c.Write {
		was = nil
	}
	text, err := h.with(was, server)
	if err != nil {
		return schemas.Errorf(schemas.Invalid, "%s: %v: add by hand what \"sandjet mcp install %s\" prints", file, err, c.Client)
	}
	if !c.Write {
		_, err := fmt.Fprintf(t.out, "%s\nPut this into %s, or run it again with --write.\n", text, file)
		return wrapOutput(err)
	}
	if bytes.Equal(was, text) {
		_, err := fmt.Fprintf(t.out, "%s has the server %q already: nothing is changed.\n", file, mcpName)
		return wrapOutput(err)
	}
	if err := replaceKeeping(file, was, text); err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.out, "%s has the server %q now. Start %s again, so that it reads it.\n", file, mcpName, c.Client)
	return wrapOutput(err)
}

// server returns the entry: the program that the client starts, or the gateway that it calls.
func (c *mcpInstallCommand) server(h mcpHost) (s mcpServer, err error) {
	if c.URL != "" {
		return c.remote(h)
	}
	program, err := os.Executable()
	if err != nil {
		return s, fmt.Errorf("find this program: %w", err)
	}
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return s, fmt.Errorf("--data-dir: %w", err)
	}
	s = mcpServer{Command: program, Args: []string{"mcp", "--up", "--data-dir", dir}}
	if h.kind {
		s.Type = "stdio"
	}
	for _, f := range [][2]string{{"--agent", c.Agent}, {"--workspace", c.Workspace}, {"--conversation", c.Conversation}} {
		if f[1] != "" {
			s.Args = append(s.Args, f[0], f[1])
		}
	}
	return s, nil
}

func (c *mcpInstallCommand) remote(h mcpHost) (mcpServer, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return mcpServer{}, schemas.Invalidf("url", "%q is not the URL of a gateway, such as https://sandjet.example.com",
			schemas.Quotable(c.URL))
	}
	if u.User != nil {
		return mcpServer{}, schemas.Invalidf("url", "has a name or a password in it, and others may read the client's file: leave them out; "+
			"the key is in SANDJET_KEY")
	}
	if h.env == "" {
		return mcpServer{}, schemas.Errorf(schemas.Unsupported,
			"%s starts programs only: leave --url out, or have it start \"sandjet mcp --url %s\" with SANDJET_KEY in its env", c.Client, c.URL)
	}
	u = u.JoinPath("mcp")
	q := url.Values{}
	for name, v := range map[string]string{"agent": c.Agent, "workspace": c.Workspace, "conversation": c.Conversation} {
		if v != "" {
			q.Set(name, v)
		}
	}
	u.RawQuery = q.Encode()
	s := mcpServer{URL: u.String(), Headers: map[string]string{"Authorization": "Bearer " + h.env}}
	if h.kind {
		s.Type = "http"
	}
	return s, nil
}

// fileOf returns the path of the client's configuration file.
func (c *mcpInstallCommand) fileOf(h mcpHost) (string, error) {
	if c.File != "" {
		return filepath.Abs(c.File)
	}
	at, err := os.Getwd()
	if h.home {
		at, err = os.UserHomeDir()
	}
	if err != nil {
		return "", fmt.Errorf("find the client's file: %w", err)
	}
	return filepath.Join(at, filepath.FromSlash(h.file)), nil
}

// with returns the text of a client's file with the server added or replaced in it. It fails if it cannot parse the text.
func (h mcpHost) with(was []byte, s mcpServer) ([]byte, error) {
	if h.key != "" {
		return jsonWith(was, h.key, mcpName, s)
	}
	values := []tomlValue{{key: "command"}, {key: "args"}, {key: "url"}, {key: "bearer_token_env_var"}}
	if s.URL != "" {
		values[2].text, values[3].text = quotedText(s.URL), quotedText(h.env)
	} else {
		args := make([]string, len(s.Args))
		for i, a := range s.Args {
			args[i] = quotedText(a)
		}
		values[0].text, values[1].text = quotedText(s.Command), "["+strings.Join(args, ", ")+"]"
	}
	text, err := tomlWith(string(was), []string{"mcp_servers", mcpName}, values)
	return []byte(text), err
}

// quotedText returns s as a JSON string. It is a basic string of TOML too, which has JSON's escapes.
func quotedText(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) //nolint:errchkjson // a string always encodes
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}

// replaceKeeping replaces a file, after copying its previous content to a file beside it.
func replaceKeeping(file string, was, text []byte) error {
	const dirMode, fileMode = 0o755, 0o644
	if err := os.MkdirAll(filepath.Dir(file), dirMode); err != nil {
		return fmt.Errorf("make the folder of %s: %w", file, err)
	}
	mode := fs.FileMode(fileMode)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
		if err := keepCopy(file+".before-sandjet", was, mode); err != nil {
			return err
		}
	}
	place, err := filepath.EvalSymlinks(file)
	if err != nil {
		place = file // it does not exist
	}
	tmp, err := writeTemp(place, text)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(tmp, mode), os.Rename(tmp, place)); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// keepCopy writes a copy unless one exists: the first one is the file as it was before any change by this program.
func keepCopy(file string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) // the user names the file
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("keep a copy: %w", err)
	}
	return nil
}
