package records

import (
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/sandjet/sandjet/internal/netguard"
	"github.com/sandjet/sandjet/schemas"
)

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
)

const (
	maxPrefix   = 512  // bytes
	maxEndpoint = 1024 // bytes
)

// bucketOf and storageOf turn what a client says of storage into the record's words, and back.
func bucketOf(c schemas.StorageConfig) schemas.Bucket {
	return schemas.Bucket{
		Name: c.Bucket, Prefix: c.Prefix, Region: c.Region, Endpoint: c.Endpoint, PathStyle: c.PathStyle,
		AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken,
	}
}

func storageOf(w schemas.Workspace) schemas.StorageConfig {
	b := w.Bucket
	return schemas.StorageConfig{
		Provider: w.Storage, Bucket: b.Name, Prefix: b.Prefix, Region: b.Region, Endpoint: b.Endpoint, PathStyle: b.PathStyle,
		AccessKeyID: b.AccessKeyID, SecretAccessKey: b.SecretAccessKey, SessionToken: b.SessionToken,
	}
}

// checkStorageConfig reports what in a workspace's storage is wrong in itself, all of it. It is pure, and shows no credential. What the
// operator's credentials open is the operator's bucket alone, below the workspace's own prefix: so a bucket of the account's own comes
// with credentials, and nothing else is said of the operator's.
func checkStorageConfig(c schemas.StorageConfig) error {
	var p schemas.Problems
	bad := func(field, format string, args ...any) {
		p.Add("config.storage."+field, schemas.Invalidf("", format, args...))
	}
	switch {
	case c == schemas.StorageConfig{}:
		return nil
	case c.Provider == "vercel" || c.Provider == "":
		bad("provider", "%q holds no files of workspaces: use s3, or leave storage out", schemas.Quotable(c.Provider))
		return p.Err()
	case c.Provider != "s3":
		bad("provider", "%q is unknown: use s3, or leave storage out", schemas.Quotable(c.Provider))
		return p.Err()
	case c == schemas.StorageConfig{Provider: c.Provider}:
		return nil
	case c.Bucket == "":
		bad("bucket", "is missing, and more is said of it: name one of your own, or say nothing but the provider for the operator's")
		return p.Err()
	}
	if !bucketName.MatchString(c.Bucket) || strings.Contains(c.Bucket, "..") {
		bad("bucket", "%q is not the name of a bucket: 3 to 63 of a-z 0-9 . -", schemas.Quotable(c.Bucket))
	}
	if why := checkPrefix(c.Prefix); why != "" {
		bad("prefix", "%q %s: write it as data/agents/", schemas.Quotable(c.Prefix), why)
	}
	if c.Region != "" && !regionName.MatchString(c.Region) {
		bad("region", "%q is not a region such as eu-central-1", schemas.Quotable(c.Region))
	}
	if c.Endpoint != "" {
		if why := checkEndpoint(c.Endpoint); why != "" {
			bad("endpoint", "%s: write it as https://s3.example.com", why)
		}
	}
	for _, v := range []struct {
		field, value string
		needed       bool
	}{{"accessKeyId", c.AccessKeyID, true}, {"secretAccessKey", c.SecretAccessKey, true}, {"sessionToken", c.SessionToken, false}} {
		_, ref := schemas.VariableRef(v.value)
		switch {
		case v.value == "" && v.needed:
			bad(v.field, "is missing: set a variable of the account, and name it as env:NAME")
		case v.value != "" && !ref:
			bad(v.field, "names no variable: set one with \"sandjet variables set NAME\", and write env:NAME; the value itself is not taken here")
		}
	}
	return p.Err()
}

func checkPrefix(s string) string {
	switch {
	case s == "":
		return ""
	case len(s) > maxPrefix:
		return "is too long"
	case !strings.HasSuffix(s, "/"):
		return "does not end with a slash"
	case path.Clean(s)+"/" != s || s[0] == '/' || strings.HasPrefix(s, "../") || s == "./":
		return "has .., . or an empty part"
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' || r == '\ufffd' }):
		return "has a backslash, a control character or what is not UTF-8"
	}
	return ""
}

// checkEndpoint looks at a URL. That it leads to a public address is seen when it is connected to.
func checkEndpoint(s string) string {
	if len(s) > maxEndpoint {
		return "is too long"
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "is no URL"
	case u.Scheme != "https":
		return "does not begin with https://"
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return "has more than a host and a port"
	}
	if _, err := netguard.ParseHost(u.Hostname()); err != nil {
		return "has no host"
	}
	return ""
}
