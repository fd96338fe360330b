//go:build linux

package lambda_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/lambda/lambdatest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools"
)

// TestFilesOnS3: what a function writes into its mount is what an agent without a sandbox reads from the bucket, below the workspace's own
// prefix and nothing else.
func TestFilesOnS3(t *testing.T) {
	server := s3test.Start(t, "agents")
	folder := filepath.Join(server.Folder, "agents", "sandbox") // as the file system of the stack has it: the prefix sandbox/
	p, _ := start(t, lambdatest.Options{Workspaces: folder}, nil)
	ok(t, p, command("mkdir src; printf 'one\\n' >src/a.txt; printf two >'b c.txt'"))
	testwait.OK(t, os.MkdirAll(filepath.Join(folder, "fs-2"), 0o700))
	testwait.OK(t, os.WriteFile(filepath.Join(folder, "fs-2", "secret.txt"), []byte("secret"), 0o600))

	b, err := bucket.Open(bucket.Options{
		Bucket: "agents", Prefix: "sandbox/" + namespace + "/", Region: "us-east-1", Endpoint: server.URL, PathStyle: true,
		Credentials: bucket.Static(s3test.Key, s3test.Secret, ""),
	})
	testwait.OK(t, err)
	defer b.Close()
	for want, call := range map[string]schemas.Call{
		"one":       {Tool: schemas.ToolRead, Input: []byte(`{"file_path":"src/a.txt"}`)},
		"src/a.txt": {Tool: schemas.ToolGlob, Input: []byte(`{"pattern":"**/*.txt"}`)},
	} {
		input, err := schemas.DecodeInput(call.Tool, call.Input)
		testwait.OK(t, err)
		files := b.Reader()
		r, native, err := tools.RunNative(t.Context(), files, call, input)
		if err != nil || !native || r.Status != schemas.StatusCompleted || !strings.Contains(r.Text, want) || strings.Contains(r.Text, "secret") {
			t.Errorf("%s: %v, native %v: %q", call.Tool, err, native, r.Text)
		}
		testwait.OK(t, files.Close())
	}
}
