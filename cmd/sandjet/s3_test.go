package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/schemas"
)

// TestWorkspacesOnS3 goes the whole way by the command line, with a real server of S3.
func TestWorkspacesOnS3(t *testing.T) {
	server := s3test.Start(t, "agents")
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.Secret)
	runOnS3(t, "testdata/s3", server)
}

// TestWorkspacesOnS3WithDocker is the same in containers of a real engine.
func TestWorkspacesOnS3WithDocker(t *testing.T) {
	engine := dockertest.Get(t)
	image := engine.Image(t, dockertest.Tools)
	server := s3test.Start(t, "agents")
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.Secret)
	runOnS3(t, "testdata/s3docker", server, "ENGINE="+engine.Host, "IMAGE="+image)
}

// runOnS3 runs the scripts of a folder, which find the server in S3 and its files in BUCKETS.
func runOnS3(t *testing.T, dir string, server s3test.Server, variables ...string) {
	t.Helper()
	scripts := &processes{}
	testscript.Run(t, testscript.Params{
		Dir: dir, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			err := setup(e)
			e.Vars = append(append(e.Vars, "S3="+server.URL, "BUCKETS="+server.Folder,
				"AWS_ACCESS_KEY_ID="+s3test.Key, "AWS_SECRET_ACCESS_KEY="+s3test.Secret), variables...)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": scripts.start, "await": await, "halt": scripts.halt, "ends": scripts.ends, "signal": scripts.signal, "exits": exits,
		},
	})
}

// TestWhoseCredentialsOpenWhichBucket: what a record names is opened with what the record names, and the operator's bucket only below the
// workspace's own prefix.
func TestWhoseCredentialsOpenWhichBucket(t *testing.T) {
	t.Parallel()
	w := schemas.Workspace{Account: "acct_1", ID: "ws_000000000000000000000001", Name: "docs", Storage: "s3"}
	own := prefixS3 + schemas.Namespace(w.Account, w.ID) + "/"
	asked := []string{}
	n := &node{log: slog.New(slog.DiscardHandler)}
	a := &s3Access{n: n, value: func(_ context.Context, _ schemas.AccountID, ref string) (string, error) {
		asked = append(asked, ref)
		if ref == "env:NONE" {
			return "", errors.New("there is none")
		}
		return "value of " + ref, nil
	}, private: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	if _, err := a.open(t.Context(), w); schemas.CodeOf(err) != schemas.Unsupported || !strings.Contains(err.Error(), "--s3-bucket") {
		t.Errorf("without any bucket: %v", err)
	}
	if r, err := a.reader(t.Context(), w); r != nil || err != nil {
		t.Errorf("without any bucket it reads %v, %v", r, err)
	}
	a.flags.S3Bucket, a.credentials = "operators", bucket.Static("a", "b", "")
	b, err := a.open(t.Context(), w)
	if err != nil || b.Where() != "s3.us-east-1/operators/"+own || len(asked) != 0 {
		t.Errorf("the operator's is opened as %v, %v, with %v", b, err, asked)
	}
	w.Bucket = schemas.Bucket{
		Name: "mine", Prefix: "data/", AccessKeyID: "env:KEY", SecretAccessKey: "env:SECRET", Endpoint: "https://s3.example.com",
	}
	b, err = a.open(t.Context(), w)
	if err != nil || b.Where() != "https://s3.example.com/mine/data/" || strings.Join(asked, " ") != "env:KEY env:SECRET" {
		t.Errorf("one of the account's is opened as %v, %v, with %v", b, err, asked)
	}
	w.Bucket.Endpoint = "http://s3.example.com"
	if _, err = a.open(t.Context(), w); err == nil {
		t.Error("credentials would go over the wire in the clear")
	}
	w.Bucket.Endpoint, w.Bucket.SecretAccessKey = "", "env:NONE"
	if _, err = a.open(t.Context(), w); err == nil {
		t.Error("a variable that is not there was passed over")
	}
}
