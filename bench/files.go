package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/files"
)

// Files measures uploads and downloads of one file of size bytes, through a gateway and a worker, compared with a server that only copies
// between the same HTTP stack and a file, in interleaved rounds.
func Files(ctx context.Context, size int64, rounds int) (Report, error) {
	dir, err := os.MkdirTemp("", "sandjet-bench-")
	if err != nil {
		return Report{}, fmt.Errorf("files: make a folder: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what is left is in a temporary folder
	o, err := openOurs(ctx)
	if err != nil {
		return Report{}, err
	}
	defer o.close(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ours, err := filePlane(ctx, o, dir, &parts)
	if err != nil {
		return Report{}, err
	}
	bareURL, err := bareFiles(ctx, dir, &parts)
	if err != nil {
		return Report{}, err
	}
	content := make([]byte, size)
	up, down := map[string][]float64{}, map[string][]float64{}
	for round := range rounds + 1 { // the first round is a warm-up
		sides := []struct{ name, url string }{{"bare", bareURL}, {"ours", ours}}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			sent, err := transfer(ctx, http.MethodPut, side.url, content)
			if err != nil {
				return Report{}, fmt.Errorf("files, %s: %w", side.name, err)
			}
			got, err := transfer(ctx, http.MethodGet, side.url, content)
			if err != nil {
				return Report{}, fmt.Errorf("files, %s: %w", side.name, err)
			}
			if round > 0 {
				up[side.name], down[side.name] = append(up[side.name], sent), append(down[side.name], got)
			}
		}
	}
	uploads := ratio("upload, Sandjet ÷ bare", "", up["ours"], up["bare"])
	downloads := ratio("download, Sandjet ÷ bare", "", down["ours"], down["bare"])
	const unit = "MB/s"
	return Report{
		Title: fmt.Sprintf("One file of %d MiB, up and down", size>>20), Machine: machine(),
		Rows: []Row{
			row("bare upload", unit, up["bare"]), row("upload by Sandjet", unit, up["ours"]),
			row("bare download", unit, down["bare"]), row("download by Sandjet", unit, down["ours"]),
		},
		Ratios: []Ratio{uploads, downloads},
		Notes: []string{"Bare is a server of net/http that copies between the connection and a file, which it syncs. Sandjet's bytes go " +
			"through a gateway, a message of 512 KiB for each piece, and a worker. All of it, and the client, are one process."},
	}, nil
}

// transfer sends or receives the content once, and returns the rate in megabytes per second.
func transfer(ctx context.Context, method, url string, content []byte) (float64, error) {
	body := io.Reader(http.NoBody)
	if method == http.MethodPut {
		body = bytes.NewReader(content)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, fmt.Errorf("make a request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+benchKey)
	began := time.Now()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", method, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	n, err := io.Copy(io.Discard, resp.Body)
	took := time.Since(began)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %w", method, err)
	case resp.StatusCode >= http.StatusMultipleChoices:
		return 0, fmt.Errorf("%s: status %d", method, resp.StatusCode)
	case method == http.MethodGet && n != int64(len(content)):
		return 0, fmt.Errorf("%d of %d bytes came: %w", n, len(content), io.ErrUnexpectedEOF)
	}
	return float64(len(content)) / 1e6 / took.Seconds(), nil
}

// benchFolders opens the workspaces of a worker that only serves files.
type benchFolders struct{ dir string }

// OpenWorkspace implements [providers.Filer].
func (f benchFolders) OpenWorkspace(_ context.Context, _ schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	dir := filepath.Join(f.dir, m.Namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as workspaces are
		return nil, fmt.Errorf("make a workspace: %w", err)
	}
	return safefs.Open(dir, safefs.Options{})
}

// filePlane starts a gateway and a worker that serves files, and returns the URL of a file.
func filePlane(ctx context.Context, o *ours, dir string, parts *sync.WaitGroup) (string, error) {
	store, err := records.Open(ctx, o.bus, nil, benchProviders())
	if err != nil {
		return "", fmt.Errorf("records: %w", err)
	}
	a, err := store.Accounts.Ensure(ctx, records.Bootstrap{Account: benchAccount, Key: benchKey, Provider: benchProvider})
	if err != nil {
		return "", fmt.Errorf("account: %w", err)
	}
	const workspace = "ws_bench"
	worker := &files.Server{Bus: o.bus, Place: streams.FilesInFolders(benchProvider), Open: files.InFolders(benchFolders{dir}), Log: slog.New(slog.DiscardHandler)}
	parts.Go(func() { worker.Run(ctx) })
	g := gateway.New(gateway.Options{Bus: o.bus, Records: store, Grace: time.Second,
		Workspace: func(context.Context, schemas.AccountID, schemas.WorkspaceID) (schemas.WorkspaceFiles, error) {
			return schemas.WorkspaceFiles{Workspace: schemas.Workspace{ID: workspace, Account: a.ID}, Provider: benchProvider}, nil
		}})
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	parts.Go(func() { _ = g.Run(ctx, l) })
	return "http://" + l.Addr().String() + "/v1/workspaces/" + workspace + "/files/f", nil
}

// bareFiles starts a server that only copies a file, and returns its URL.
func bareFiles(ctx context.Context, dir string, parts *sync.WaitGroup) (string, error) {
	at := filepath.Join(dir, "bare")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /f", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, at) })
	mux.HandleFunc("PUT /f", func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Create(at + ".new")
		if err == nil {
			_, err = io.Copy(f, r.Body)
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if err == nil {
			err = os.Rename(f.Name(), at)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	parts.Go(func() { _ = s.Serve(l) })
	parts.Go(func() {
		<-ctx.Done()
		_ = s.Close()
	})
	return "http://" + l.Addr().String() + "/f", nil
}
