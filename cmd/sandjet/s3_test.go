package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/schemas"
)

// TestWorkspacesOnS3 runs scripts of command lines with workspaces on a real S3 server.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestWorkspacesOnS3(t *testing.T) {
	runScripts(t, "testdata/s3", settingsOfS3(s3test.Start(t, "agents")))
}

// TestWorkspacesOnS3WithDocker does the same with containers of a real Docker engine.
func TestWorkspacesOnS3WithDocker(t *testing.T) {
	engine := dockertest.Get(t)
	image := engine.Image(t, dockertest.Tools)
	settings := settingsOfS3(s3test.Start(t, "agents"))
	settings["ENGINE"], settings["IMAGE"] = engine.Host, image
	runScripts(t, "testdata/s3docker", settings)
}

// settingsOfS3 returns the environment variables of a script: the server's URL in S3, the folder with its files in BUCKETS, and
// credentials.
func settingsOfS3(s s3test.Server) map[string]string {
	return map[string]string{"S3": s.URL, "BUCKETS": s.Folder, "AWS_ACCESS_KEY_ID": s3test.Key, "AWS_SECRET_ACCESS_KEY": s3test.Secret}
}

// TestWhoseCredentialsOpenWhichBucket: a bucket that a workspace's record names is opened with the credentials that the record names. The
// operator's bucket is opened with the operator's credentials, and only below the workspace's own prefix.
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
