package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/schemas"
)

// engine is a plain client of a Docker engine: its HTTP API at a socket of this host.
type engine struct {
	client http.Client
	image  string
}

func openEngine(o docker.Options) (*engine, error) {
	host, image := o.Host, o.Image
	if host == "" {
		host = os.Getenv("DOCKER_HOST")
	}
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	if image == "" {
		image = docker.DefaultImage
	}
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil, schemas.OpErrorf(schemas.Unsupported, "bench",
			"the engine at %s is not measured: name a socket of this host by DOCKER_HOST", host)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	return &engine{client: http.Client{Transport: transport}, image: image}, nil
}

func (e *engine) close() { e.client.CloseIdleConnections() }

// ask makes a request, reads the whole answer, and decodes it into out unless that is nil. Status 304 (nothing to change) is no error.
func (e *engine) ask(ctx context.Context, method, path string, body, out any) error {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, sent)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read to its end
	answer, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("the engine answers %s: %.300s", res.Status, answer)
	case out != nil:
		return json.Unmarshal(answer, out)
	}
	return nil
}

// create creates a container with the same limits as the provider's.
func (e *engine) create(ctx context.Context, command ...string) (id string, err error) {
	const memory, pids = 512 << 20, 528
	var made struct {
		ID string `json:"Id"` //nolint:tagliatelle // the engine's name
	}
	err = e.ask(ctx, http.MethodPost, "/containers/create", map[string]any{
		"Image": e.image, "User": "1000:1000", "Entrypoint": command, "Cmd": []string{},
		"HostConfig": map[string]any{
			"NetworkMode": "none", "LogConfig": map[string]any{"Type": "none"}, "CapDrop": []string{"ALL"},
			"SecurityOpt": []string{"no-new-privileges"}, "Init": true, "Memory": memory, "MemorySwap": memory, "PidsLimit": pids,
		},
	}, &made)
	return made.ID, err
}

// start creates and starts a container that keeps running.
func (e *engine) start(ctx context.Context) (id string, err error) {
	if id, err = e.create(ctx, "sleep", "2147483647"); err == nil {
		err = e.post(ctx, id, "start")
	}
	return id, err
}

// once creates a container for one command, starts it and waits until it has exited.
func (e *engine) once(ctx context.Context) (id string, err error) {
	if id, err = e.create(ctx, "sh", "-c", "true"); err != nil {
		return id, err
	}
	if err = e.post(ctx, id, "start"); err == nil {
		err = e.post(ctx, id, "wait")
	}
	return id, err
}

// post calls an operation of a container: start, stop, pause, unpause, wait.
func (e *engine) post(ctx context.Context, id, verb string) error {
	if verb == "stop" {
		verb += "?t=0"
	}
	return e.ask(ctx, http.MethodPost, "/containers/"+id+"/"+verb, nil, nil)
}

func (e *engine) remove(ctx context.Context, id string) error {
	return e.ask(ctx, http.MethodDelete, "/containers/"+id+"?force=true", nil, nil)
}

// exec runs a command in a container, reads its output, and checks its exit code.
func (e *engine) exec(ctx context.Context, id string) error {
	var made struct {
		ID string `json:"Id"` //nolint:tagliatelle // the engine's name
	}
	err := e.ask(ctx, http.MethodPost, "/containers/"+id+"/exec", map[string]any{
		"AttachStdout": true, "AttachStderr": true, "Cmd": []string{"sh", "-c", "true"},
	}, &made)
	if err != nil {
		return err
	}
	if err := e.ask(ctx, http.MethodPost, "/exec/"+made.ID+"/start", map[string]any{"Detach": false}, nil); err != nil {
		return err
	}
	var ended struct {
		Running  bool
		ExitCode int
	}
	if err := e.ask(ctx, http.MethodGet, "/exec/"+made.ID+"/json", nil, &ended); err != nil {
		return err
	}
	if ended.Running || ended.ExitCode != 0 {
		return fmt.Errorf("true ended with %d, running %v", ended.ExitCode, ended.Running)
	}
	return nil
}
