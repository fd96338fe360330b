package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

type infoCommand struct {
	target

	Shell bool `use:"" help:"Print lines for a shell to evaluate: eval \"$(sandjet info --shell)\"."`

	dir string
}

// Help returns the detailed help, for kong.
func (*infoCommand) Help() string {
	return `Prints where Sandjet can be reached, and with which key, from up.json of the data folder; --url and --key (SANDJET_URL
and SANDJET_KEY) win over it. With --shell the lines set SANDJET_URL, SANDJET_KEY, SANDJET_ACCOUNT and
NATS_URL, so that programs and other commands find it too.

Examples:
  sandjet info
  eval "$(sandjet info --shell)"
  curl -H "Authorization: Bearer $SANDJET_KEY" "$SANDJET_URL/v1/calls"`
}

// AfterApply is called by kong once everything is parsed.
func (c *infoCommand) AfterApply(root *cli) error {
	c.dir = clientDir(root.DataDir)
	return nil
}

// information is what info prints.
type information struct {
	URL     string            `json:"url"`
	NATSURL string            `json:"nats_url,omitzero"` // with the account's credential
	Account schemas.AccountID `json:"account,omitzero"`
	Key     string            `json:"key"`
	DataDir string            `json:"data_dir,omitzero"`
	PID     int               `json:"pid,omitzero"`
	Version string            `json:"version"` // of this program
	Server  string            `json:"server"`  // version of the gateway; empty where it does not answer
}

// Run prints the information.
func (c *infoCommand) Run(ctx context.Context, t terminal) error {
	i := information{URL: c.URL, Key: c.Key, Version: readBuild().Version}
	dir := dataDir(c.dir)
	switch e, err := dir.running(); {
	case i.URL == "" && err != nil:
		return err
	case i.URL == "" || err == nil && i.URL == e.URL: // --url may be what --shell printed before
		i.URL, i.NATSURL, i.Account, i.Key, i.DataDir, i.PID = e.URL, e.NATSURL, e.Account, cmp.Or(c.Key, e.Key),
			cmp.Or(absolute(string(dir)), string(dir)), e.PID
	}
	if c.Shell {
		if t.json {
			return schemas.Invalidf("shell", "prints lines for a shell: give it without --json, or --json without it")
		}
		return printShell(t, i)
	}
	if body, err := askHealth(ctx, i.URL, "/healthz"); err == nil {
		i.Server = versionIn(body)
	}
	if t.json {
		return printJSON(t.out, i)
	}
	return say(t, "url       %s\nnats      %s\naccount   %s\nkey       %s\ndata      %s\nversion   %s\nserver    %s", i.URL,
		orDash(withoutCredentials(i.NATSURL)),
		orDash(string(i.Account)), orDash(i.Key), orDash(i.DataDir), i.Version, cmp.Or(i.Server, "does not answer"))
}

// printShell prints export lines for a POSIX shell.
func printShell(t terminal, i information) error {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	for _, v := range []struct{ name, value string }{
		{"SANDJET_URL", i.URL}, {"SANDJET_KEY", i.Key}, {"SANDJET_ACCOUNT", string(i.Account)}, {"NATS_URL", i.NATSURL},
	} {
		if v.value == "" {
			continue
		}
		if _, err := fmt.Fprintf(t.out, "export %s=%s\n", v.name, quote(v.value)); err != nil {
			return wrapOutput(err)
		}
	}
	return nil
}

// versionIn returns the version in a gateway's answer to /healthz; empty if there is none.
func versionIn(body []byte) string {
	var answer struct {
		Version string `json:"version"`
	}
	_ = json.Unmarshal(body, &answer) // without one it is empty
	return printable(answer.Version)
}

// absolute returns the absolute form of a path; empty if that fails.
func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	return abs
}
