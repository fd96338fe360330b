package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

type versionCommand struct{}

// buildInfo is the version of this program and how it was built.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitzero"`
	Time     string `json:"time,omitzero"`
	Modified bool   `json:"modified,omitzero"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// String is one line for people.
func (b buildInfo) String() string {
	return fmt.Sprintf("sandjet %s (%s, %s)", b.Version, b.Go, b.Platform)
}

// readBuild reads the build information that the Go toolchain has embedded.
func readBuild() buildInfo {
	b := buildInfo{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Run prints the version.
func (*versionCommand) Run(_ context.Context, t terminal) error {
	b := readBuild()
	if t.json {
		return printJSON(t.out, b)
	}
	return say(t, "%s", b)
}

// printJSON prints v on one line.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return wrapOutput(e.Encode(v))
}

func wrapOutput(err error) error {
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
