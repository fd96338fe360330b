package daytonatest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// defaultLimit is that of a command whose request names none.
const defaultLimit = 10 * time.Second

func (s *Service) execute(w http.ResponseWriter, r *http.Request, b *box) {
	var req struct {
		Command string            `json:"command"`
		Timeout *int              `json:"timeout"`
		Dir     string            `json:"cwd"`
		Env     map[string]string `json:"envs"`
	}
	if !read(w, r, &req) {
		return
	}
	switch {
	case req.Command == "":
		fail(w, http.StatusBadRequest, "command is required")
		return
	case !b.running.Has("/"): // it is just being ended
		failNoAddress(w)
		return
	case req.Dir != "" && !b.running.Has(req.Dir):
		servicetest.Answer(w, http.StatusOK, map[string]any{"exitCode": -1, "result": ""})
		return
	}
	limit := defaultLimit
	if req.Timeout != nil {
		limit = time.Duration(*req.Timeout) * time.Second
	}
	cmd := b.running.Command(b.creation.User, req.Dir, req.Env, "bash")
	cmd.Stdin = strings.NewReader(req.Command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		fail(w, http.StatusInternalServerError, "%v", err)
		return
	}
	var late bool
	var mu sync.Mutex
	clock := time.AfterFunc(limit, func() {
		mu.Lock()
		defer mu.Unlock()
		late = true
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	})
	if limit == 0 {
		clock.Stop()
	}
	err := cmd.Wait()
	clock.Stop()
	mu.Lock()
	defer mu.Unlock()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	}
	select {
	case <-b.running.Over():
		fail(w, http.StatusBadGateway, "bad gateway: the sandbox has ended")
		return
	default:
	}
	if late {
		fail(w, http.StatusRequestTimeout, "request timeout: command execution timeout")
		return
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{"exitCode": code, "result": out.String()})
}

// absolute returns the absolute path for a path in a request, which may be relative to the user's home.
func (b *box) absolute(name string) string {
	if !path.IsAbs(name) {
		return path.Join("/home/daytona", name)
	}
	return path.Clean(name)
}

// write creates a file.
func (b *box) write(name string, content io.Reader) error {
	cmd := b.running.Command(b.creation.User, "/", nil, "bash", "-c", `mkdir -p -- "${1%/*}" && cat >"$1"`, "write", b.absolute(name))
	cmd.Stdin = content
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(string(out))
	}
	return nil
}

// upload stores one file whose path is in the query, or several, each preceded by its path.
func (s *Service) upload(w http.ResponseWriter, r *http.Request, b *box) {
	form, err := r.MultipartReader()
	name := r.URL.Query().Get("path")
	for err == nil {
		var part *multipart.Part
		if part, err = form.NextPart(); err != nil {
			break
		}
		switch {
		case strings.HasSuffix(part.FormName(), ".path"):
			var text []byte
			text, err = io.ReadAll(part)
			name = string(text)
		case name == "":
			err = errors.New("a file without a path")
		default:
			err = b.write(name, part)
		}
	}
	if !errors.Is(err, io.EOF) {
		fail(w, http.StatusBadRequest, "upload: %v", err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// content returns the content of a file.
func (b *box) content(name string) ([]byte, error) {
	out, err := b.running.Command(b.creation.User, "/", nil, "cat", "--", b.absolute(name)).Output()
	if err != nil {
		return nil, errors.New("file not found: " + name)
	}
	return out, nil
}

func (s *Service) download(w http.ResponseWriter, r *http.Request, b *box) {
	out, err := b.content(r.URL.Query().Get("path"))
	if err != nil {
		fail(w, http.StatusNotFound, "%v", err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(out) // the client may be gone
}

// bulkDownload sends several files as the parts of one response, with an error in place of a file that cannot be read.
func (s *Service) bulkDownload(w http.ResponseWriter, r *http.Request, b *box) {
	var req struct {
		Paths []string `json:"paths"`
	}
	if !read(w, r, &req) {
		return
	}
	form := multipart.NewWriter(w)
	w.Header().Set("Content-Type", form.FormDataContentType())
	for _, name := range req.Paths {
		field, kind := "file", "application/octet-stream"
		out, err := b.content(name)
		if err != nil {
			field, kind = "error", "application/json"
			out = fmt.Appendf(nil, `{"message": %q, "statusCode": 404, "code": "FILE_NOT_FOUND"}`, err.Error())
		}
		part, err := form.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {`form-data; name="` + field + `"; filename="` + name + `"`}, "Content-Type": {kind},
		})
		if err == nil {
			_, _ = part.Write(out) // the client may be gone
		}
	}
	_ = form.Close() // as above
}

// listFiles lists a folder, one level of it.
func (s *Service) listFiles(w http.ResponseWriter, r *http.Request, b *box) {
	out, err := b.running.Command(b.creation.User, "/", nil, "find", b.absolute(cmp.Or(r.URL.Query().Get("path"), "."))+"/",
		"-mindepth", "1", "-maxdepth", "1", "-printf", `%f\t%y\t%s\t%m\0`).Output()
	if err != nil {
		fail(w, http.StatusNotFound, "file not found: %s", r.URL.Query().Get("path"))
		return
	}
	all := []map[string]any{}
	for one := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		f := strings.Split(one, "\t")
		if len(f) != 4 {
			continue
		}
		size, _ := strconv.Atoi(f[2]) // find has written it
		all = append(all, map[string]any{
			"name": f[0], "isDir": f[1] == "d", "size": size, "permissions": f[3], "mode": f[3], "owner": "daytona", "group": "daytona",
			"modTime": now(), "modifiedAt": now(),
		})
	}
	servicetest.Answer(w, http.StatusOK, all)
}

func (s *Service) deleteFile(w http.ResponseWriter, r *http.Request, b *box) {
	how := "-f"
	if r.URL.Query().Get("recursive") == "true" {
		how = "-rf"
	}
	name := b.absolute(r.URL.Query().Get("path"))
	if out, err := b.running.Command(b.creation.User, "/", nil, "rm", how, "--", name).CombinedOutput(); err != nil {
		fail(w, http.StatusBadRequest, "%s", out)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
