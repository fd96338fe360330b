package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// toolInput returns a tool's input: a single argument that is a JSON object, as it is, else an object of the positional arguments. A
// content of "-" is read from stdin. Code: invalid.
func toolInput(tool schemas.Tool, args []string, stdin io.Reader) (json.RawMessage, error) {
	if len(args) == 1 && strings.HasPrefix(strings.TrimSpace(args[0]), "{") {
		var object map[string]json.RawMessage
		err := json.Unmarshal([]byte(args[0]), &object)
		switch {
		case err == nil:
			return json.RawMessage(args[0]), nil
		case strings.HasPrefix(strings.TrimSpace(args[0]), `{"`): // no shell command begins like that
			return nil, schemas.Invalidf("input", "begins as a JSON object and is not one: %v", err)
		}
	}
	form, ok := forms()[tool]
	if !ok {
		return nil, schemas.Invalidf("tool", "%q is unknown: use one of bash, read, write, edit, glob, grep, ls, load_skill, async_status",
			schemas.Quotable(string(tool)))
	}
	if len(args) < form.least || len(args) > len(form.fields) {
		return nil, schemas.Invalidf("", "%s takes %s, not %s: quote those that contain spaces, or give one JSON object",
			tool, form.usage(), count(len(args), "argument"))
	}
	in := map[string]string{}
	for i, a := range args {
		if form.fields[i] == "content" && a == "-" {
			b, err := io.ReadAll(io.LimitReader(stdin, schemas.MaxContent+1))
			if err != nil {
				return nil, fmt.Errorf("read stdin: %w", err)
			}
			a = string(b)
		}
		in[form.fields[i]] = a
	}
	b, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the input: %w", err)
	}
	return b, nil
}

// unreadInput reports whether stdin is a file from which nothing was read: the user then probably expects the command to read it.
func unreadInput(stdin io.Reader) bool {
	f, ok := stdin.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	at, err := f.Seek(0, io.SeekCurrent)
	return err == nil && at == 0
}

// inBackground returns the input of bash with background set. Code invalid: another tool.
func inBackground(tool schemas.Tool, input json.RawMessage) (json.RawMessage, error) {
	if tool != schemas.ToolBash {
		return nil, schemas.Invalidf("background", "only bash runs in the background, not %s", schemas.Quotable(string(tool)))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil {
		return nil, schemas.Invalidf("input", "is not a JSON object: %v", err)
	}
	fields["background"] = json.RawMessage("true")
	b, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the input: %w", err)
	}
	return b, nil
}

// form is the positional arguments of a tool.
type form struct {
	fields []string
	least  int // how many are required
}

func forms() map[schemas.Tool]form {
	return map[schemas.Tool]form{
		schemas.ToolBash:  {[]string{"command"}, 1},
		schemas.ToolRead:  {[]string{"file_path"}, 1},
		schemas.ToolWrite: {[]string{"file_path", "content"}, 2},
		schemas.ToolEdit:  {[]string{"file_path", "old_string", "new_string"}, 3},
		schemas.ToolGlob:  {[]string{"pattern", "path"}, 1},
		schemas.ToolGrep:  {[]string{"pattern", "path"}, 1},
		schemas.ToolLS:    {[]string{"path"}, 0},

		schemas.ToolLoadSkill:   {[]string{"name"}, 1},
		schemas.ToolAsyncStatus: {[]string{"statusId", "action"}, 1},
	}
}

func (f form) usage() string {
	parts := make([]string, len(f.fields))
	for i, name := range f.fields {
		parts[i] = strings.ToUpper(name)
		if i >= f.least {
			parts[i] = "[" + parts[i] + "]"
		}
	}
	return strings.Join(parts, " ")
}
