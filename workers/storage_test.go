package workers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// mounting is a provider that mounts the operator's bucket.
type mounting struct {
	fake

	fresh bool // its mount shows what the bucket has not yet
}

func (p *mounting) Profile() providers.Profile {
	f := p.fake.Profile()
	f.Storage, f.ReadsMounted = schemas.StorageYes, p.fresh
	return f
}

// onS3 has every workspace's files on S3.
type onS3 struct {
	*specs

	bucket schemas.Bucket
}

func (s onS3) Workspace(_ context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error) {
	return schemas.Workspace{ID: id, Account: a, Storage: "s3", Bucket: s.bucket}, nil
}

// TestReadsOfS3WithoutASandbox: they are of a mount that is fresher than the bucket, unless the agent's record asks for the bucket, or the
// mount is of another one.
func TestReadsOfS3WithoutASandbox(t *testing.T) {
	for name, tc := range map[string]struct {
		fresh, direct, own bool
		mounted            bool
	}{
		"a fresh mount":                  {fresh: true, mounted: true},
		"null as sandbox":                {fresh: true, direct: true},
		"a mount that shows no more":     {},
		"a bucket of the account itself": {fresh: true, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("of the bucket\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				p, s := &mounting{fresh: tc.fresh}, onS3{specs: w.specs}
				if tc.own {
					s.bucket.Name = "theirs"
				}
				p.run = func(context.Context, providers.Command) (providers.Result, error) {
					return providers.Result{Started: true, Stdout: []byte(readAnswer)}, nil
				}
				w.employ(p, func(wk *Worker) {
					wk.Specs = s
					wk.Reader = func(context.Context, schemas.Workspace) (workspacefs.FS, error) {
						return safefs.Open(dir, safefs.Options{ReadOnly: true})
					}
				})
				r := w.want(w.publish(w.call("call_1", schemas.ToolRead, func(c *schemas.Call) {
					c.Agent, c.Sandbox, c.Direct = "agent_1", "", tc.direct
				})), schemas.StatusCompleted)
				inBucket := strings.Contains(r.Text, "of the bucket")
				if inBucket == tc.mounted || (p.count() == 1) != tc.mounted {
					t.Fatalf("read in the bucket: %t, %d runs of the provider: %s", inBucket, p.count(), r.Text)
				}
				if tc.mounted {
					if m := p.runs[0].Mounts; len(m) != 1 || !m[0].ReadOnly || m[0].Storage != "s3" || p.runs[0].Network.Mode != schemas.DenyAll {
						t.Errorf("it ran with %+v and the network %q, want a mount to read, and none", m, p.runs[0].Network.Mode)
					}
				}
			})
		})
	}
}
