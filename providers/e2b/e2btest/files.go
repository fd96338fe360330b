package e2btest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os/exec"
	"path"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// absolute returns the absolute path for a path in a request, which may be relative to the user's home.
func absolute(r *http.Request, name string) string {
	if user, _ := userOf(r); !path.IsAbs(name) {
		return path.Join("/home", user, name)
	}
	return path.Clean(name)
}

func nameOf(r *http.Request) string { return absolute(r, r.URL.Query().Get("path")) }

func (s *Service) readFile(w http.ResponseWriter, r *http.Request, b *box) {
	name := nameOf(r)
	out, err := b.Command("user", "/", nil, "cat", "--", name).Output()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		fail(w, http.StatusNotFound, "path '%s' does not exist", name)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(out) // the client may be gone
}

func (s *Service) writeFile(w http.ResponseWriter, r *http.Request, b *box) {
	var content io.Reader = r.Body
	name := r.URL.Query().Get("path")
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		form, err := r.MultipartReader()
		if err != nil {
			fail(w, http.StatusBadRequest, "error parsing multipart form: %v", err)
			return
		}
		part, err := form.NextPart()
		if err != nil {
			fail(w, http.StatusBadRequest, "error parsing multipart form: %v", err)
			return
		}
		content = part
		if name == "" {
			name = part.FileName()
		}
	}
	name = absolute(r, name)
	cmd := b.Command("user", "/", nil, "bash", "-c", `mkdir -p -- "${1%/*}" && cat >"$1"`, "write", name)
	cmd.Stdin = content
	if out, err := cmd.CombinedOutput(); err != nil {
		fail(w, http.StatusInternalServerError, "error writing file: %s", out)
		return
	}
	servicetest.Answer(w, http.StatusOK, []map[string]string{{"name": path.Base(name), "type": "file", "path": name}})
}

// listDir lists a folder, one level of it.
func (s *Service) listDir(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct {
		Path string `json:"path"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		rpcError(w, http.StatusBadRequest, "invalid_argument", "message: %v", err)
		return
	}
	name := absolute(r, body.Path)
	out, err := b.Command("user", "/", nil, "find", name+"/", "-mindepth", "1", "-maxdepth", "1", "-printf",
		`%f\t%y\t%s\t%m\t%M\t%T+\0`).Output()
	if err != nil {
		rpcError(w, http.StatusNotFound, "not_found", "path not found: %s", name)
		return
	}
	kinds := map[string]string{"f": "FILE_TYPE_FILE", "d": "FILE_TYPE_DIRECTORY", "l": "FILE_TYPE_SYMLINK"}
	entries := []map[string]any{}
	for one := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		f := strings.Split(string(one), "\t")
		if len(f) != 6 {
			continue
		}
		mode, _ := strconv.ParseUint(f[3], 8, 32) // find has written it
		entries = append(entries, map[string]any{
			"name": f[0], "type": kinds[f[1]], "path": path.Join(name, f[0]), "size": f[2], "mode": mode, "permissions": f[4],
			"owner": "user", "group": "user",
		})
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"entries": entries})
}
