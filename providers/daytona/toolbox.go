package daytona

import (
	"bytes"
	"context"
	"errors"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/spool"
	"github.com/sandjet/sandjet/schemas"
)

// wayBack is how long the way to the toolbox and back may take, beside the time of a command.
const wayBack = 5 * time.Second

// toolbox is the API in a sandbox. It implements spool.Box.
type toolbox struct{ client *cloud.Client }

// toolboxTable is [table] for the toolbox. Because requests of one route do different things, the use is a part of the route here. A fetch
// may be retried, since its data is kept until the next fetch acknowledges it, and so may the upload of a file.
func toolboxTable() []cloud.Retry {
	return []cloud.Retry{
		{Route: "POST /process/execute fetch", On: busy(), Lost: true, Tries: 6},
		{Route: "POST /process/execute look", On: busy(), Lost: true},
		{Route: "POST /process/execute sweep", On: busy(), Lost: true},
		{Route: "POST /files/bulk-upload", On: busy(), Lost: true},
	}
}

// toolboxOf returns the toolbox of a sandbox. The key is sent over https only, unless the control plane itself uses http. Code:
// unavailable.
func (p *api) toolboxOf(s sandbox) (toolbox, error) {
	base, err := cloud.ParseBase("toolboxProxyUrl", s.Toolbox)
	if err != nil || base.Scheme != "https" && p.control.Base.Scheme == "https" {
		return toolbox{}, schemas.OpErrorf(schemas.Unavailable, "run", "Daytona says no address under which the sandbox is reached")
	}
	return toolbox{p.client(base.JoinPath(url.PathEscape(s.ID)), toolboxTable())}, nil
}

// wordExit is what a short command ends with: its shell says the exit code itself, for toolboxes say it in several ways.
const wordExit = "sandjet-exit "

// exitOf splits the exit code, which the shell prints last, from the output of a short command.
func exitOf(text string) (e spool.Executed, ok bool) {
	text = strings.TrimRight(text, "\n")
	at := strings.LastIndexByte(text, '\n')
	code, found := strings.CutPrefix(text[at+1:], wordExit)
	exit, err := strconv.Atoi(code)
	return spool.Executed{Exit: exit, Result: text[:max(at, 0)]}, found && err == nil
}

// Execute runs a bash script with arguments in the sandbox. The script must be short: the toolbox ends it after limit, and its output is
// lost then. Its standard input is empty.
func (t toolbox) Execute(ctx context.Context, what string, limit time.Duration, script string, args ...string) (spool.Executed, error) {
	var command strings.Builder
	command.WriteString("bash -c " + quote(script) + " sandjet")
	for _, a := range args {
		command.WriteString(" " + quote(a))
	}
	command.WriteString(" </dev/null; printf '\\n" + wordExit + "%s\\n' $?")
	var said struct {
		Result string `json:"result"`
	}
	_, err := t.client.Do(ctx, cloud.Call{
		Method: http.MethodPost, Path: "/process/execute", Route: "/process/execute " + what, Into: &said,
		Body: map[string]any{"command": command.String(), "timeout": int(limit / time.Second)},
		Wait: 4 * (limit + wayBack), Each: limit + wayBack,
	})
	if err != nil {
		return spool.Executed{}, err
	}
	e, ok := exitOf(said.Result)
	if !ok {
		return e, schemas.OpErrorf(schemas.Unavailable, "run", "the toolbox of the sandbox does not say how a command ended: %s",
			spool.Excerpt(said.Result))
	}
	return e, nil
}

// Upload writes a file.
func (t toolbox) Upload(ctx context.Context, path string, content []byte) error {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	err := w.WriteField("files[0].path", path)
	part, err2 := w.CreateFormFile("files[0].file", path)
	if err = errors.Join(err, err2); err == nil {
		_, err = part.Write(content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	_, err = t.client.Do(ctx, cloud.Call{
		Method: http.MethodPost, Path: "/files/bulk-upload",
		Header: http.Header{"Content-Type": {w.FormDataContentType()}}, Raw: form.Bytes(), Wait: endTimeout,
	})
	return err
}

// quote quotes s as one word of a shell command.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
