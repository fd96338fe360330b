package records

import (
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func ownBucket() schemas.StorageConfig {
	return schemas.StorageConfig{Provider: "s3", Bucket: "team-files", AccessKeyID: "env:KEY", SecretAccessKey: "env:SECRET"}
}

func TestStorageOfAWorkspace(t *testing.T) {
	t.Parallel()
	with := func(change func(*schemas.StorageConfig)) schemas.StorageConfig {
		c := ownBucket()
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		config schemas.StorageConfig
		field  string // at fault; "" when it is fine
	}{
		"none":           {schemas.StorageConfig{}, ""},
		"the operator's": {schemas.StorageConfig{Provider: "s3"}, ""},
		"one's own":      {ownBucket(), ""},
		"all that there is": {with(func(c *schemas.StorageConfig) {
			c.Prefix, c.Region, c.Endpoint, c.PathStyle, c.SessionToken = "a/b/", "eu-central-1", "https://s3.example.com:9000", true, "env:TOKEN"
		}), ""},
		"unknown":                      {schemas.StorageConfig{Provider: "ftp"}, "provider"},
		"vercel":                       {schemas.StorageConfig{Provider: "vercel"}, "provider"},
		"no provider":                  {with(func(c *schemas.StorageConfig) { c.Provider = "" }), "provider"},
		"the operator's, another part": {schemas.StorageConfig{Provider: "s3", Prefix: "sandbox/fs-of-another/"}, "bucket"},
		"the operator's, elsewhere":    {schemas.StorageConfig{Provider: "s3", Endpoint: "https://evil.example.com"}, "bucket"},
		"no credentials":               {schemas.StorageConfig{Provider: "s3", Bucket: "operators"}, "accessKeyId"},
		"no secret":                    {with(func(c *schemas.StorageConfig) { c.SecretAccessKey = "" }), "secretAccessKey"},
		"a secret in the clear":        {with(func(c *schemas.StorageConfig) { c.SecretAccessKey = "hunter2" }), "secretAccessKey"},
		"a token in the clear":         {with(func(c *schemas.StorageConfig) { c.SessionToken = "hunter2" }), "sessionToken"},
		"no bucket's name":             {with(func(c *schemas.StorageConfig) { c.Bucket = "a/b" }), "bucket"},
		"dots":                         {with(func(c *schemas.StorageConfig) { c.Bucket = "a..b" }), "bucket"},
		"upwards":                      {with(func(c *schemas.StorageConfig) { c.Prefix = "../x/" }), "prefix"},
		"at the root":                  {with(func(c *schemas.StorageConfig) { c.Prefix = "/x/" }), "prefix"},
		"without its slash":            {with(func(c *schemas.StorageConfig) { c.Prefix = "x" }), "prefix"},
		"a backslash":                  {with(func(c *schemas.StorageConfig) { c.Prefix = `a\b/` }), "prefix"},
		"no region":                    {with(func(c *schemas.StorageConfig) { c.Region = "eu central" }), "region"},
		"in the clear":                 {with(func(c *schemas.StorageConfig) { c.Endpoint = "http://s3.example.com" }), "endpoint"},
		"with a password":              {with(func(c *schemas.StorageConfig) { c.Endpoint = "https://a:b@s3.example.com" }), "endpoint"},
		"with a path":                  {with(func(c *schemas.StorageConfig) { c.Endpoint = "https://s3.example.com/x" }), "endpoint"},
	} {
		_, err := workspaceOf(schemas.Workspace{}, schemas.WorkspaceSpec{Name: "w", Config: schemas.WorkspaceConfig{Storage: tc.config}})
		if tc.field == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || schemas.CodeOf(err) != schemas.Invalid || !strings.Contains(err.Error(), "config.storage."+tc.field) {
			t.Errorf("%s: %v, want one about config.storage.%s", name, err, tc.field)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
	w, err := workspaceOf(schemas.Workspace{}, schemas.WorkspaceSpec{Name: "w", Config: schemas.WorkspaceConfig{Storage: ownBucket()}})
	if back := workspaceSpec(w).Config.Storage; err != nil || back != ownBucket() {
		t.Errorf("%+v came back: %v", back, err)
	}
}

// TestWhichProvidersReachABucket: a provider that mounts has its operator's bucket alone.
func TestWhichProvidersReachABucket(t *testing.T) {
	t.Parallel()
	s3, own := schemas.Workspace{Name: "w", Storage: "s3"}, schemas.Workspace{Name: "w", Storage: "s3", Bucket: bucketOf(ownBucket())}
	mounts := schemas.Sandbox{Options: map[string]any{schemas.OptionMount: true}}
	for _, tc := range []struct {
		access    schemas.StorageAccess
		workspace schemas.Workspace
		sandbox   schemas.Sandbox
		fine      bool
	}{
		{schemas.StorageCopy, s3, schemas.Sandbox{}, true},
		{schemas.StorageCopy, own, schemas.Sandbox{}, true},
		{schemas.StorageYes, s3, schemas.Sandbox{}, true},
		{schemas.StorageYes, own, schemas.Sandbox{}, false},
		{schemas.StorageOption, s3, schemas.Sandbox{}, false},
		{schemas.StorageOption, s3, mounts, true},
		{schemas.StorageOption, own, mounts, false},
		{schemas.StorageNo, s3, mounts, false},
		{"", own, mounts, false},
		{"", schemas.Workspace{}, schemas.Sandbox{}, true},
	} {
		err := schemas.Profile{Name: "p", Storage: tc.access}.Reaches(tc.workspace, tc.sandbox)
		if (err == nil) != tc.fine || err != nil && schemas.CodeOf(err) != schemas.Unsupported {
			t.Errorf("%q, bucket %q: %v", tc.access, tc.workspace.Bucket.Name, err)
		}
	}
}

func FuzzStorageConfig(f *testing.F) {
	f.Add("team-files", "a/b/", "https://s3.example.com", "env:KEY")
	f.Add("..", "../", "http://[::1%25a]:0/", "env:")
	f.Fuzz(func(t *testing.T, bucket, prefix, endpoint, key string) {
		err := checkStorageConfig(schemas.StorageConfig{
			Provider: "s3", Bucket: bucket, Prefix: prefix, Endpoint: endpoint, AccessKeyID: key, SecretAccessKey: key,
		})
		if err != nil {
			return
		}
		if bucket == "" && prefix+endpoint+key != "" || strings.Contains("/"+prefix, "/../") || prefix != "" && !strings.HasSuffix(prefix, "/") ||
			endpoint != "" && !strings.HasPrefix(strings.ToLower(endpoint), "https://") {
			t.Errorf("%q %q %q %q passed", bucket, prefix, endpoint, key)
		}
	})
}
