package main

import (
	"cmp"
	"context"
	"net/netip"
	"net/url"
	"path/filepath"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/filesync"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers"
	"github.com/sandjet/sandjet/workers/files"
)

// s3Flags name the bucket of workspaces on S3 whose records name none, and limit how much of a bucket is copied to a host.
type s3Flags struct {
	S3Bucket    string   `name:"s3-bucket" placeholder:"NAME" group:"S3" help:"Bucket of workspaces on S3 whose records name none; their keys begin with sandbox/. Credentials come from the environment, as for Amazon's own programs. Default: such workspaces are refused, but by providers that mount a bucket."`
	S3Region    string   `name:"s3-region" placeholder:"NAME" group:"S3" help:"Region of that bucket. Default: as Amazon's own programs find it, such as AWS_REGION, else us-east-1."`
	S3Endpoint  string   `name:"s3-endpoint" placeholder:"URL" group:"S3" help:"Address of another service that speaks as S3 does. Default: Amazon's of the region."`
	S3PathStyle bool     `name:"s3-path-style" group:"S3" help:"The service at --s3-endpoint has buckets in the path of its URLs, not in the host."`
	S3Only      bool     `name:"s3-only" group:"S3" help:"Serve workspaces on S3 alone. Workers of one provider then need not share a folder."`
	S3Files     int      `name:"s3-files" placeholder:"N" default:"10000" group:"S3" help:"Most files of a workspace on S3, that a host takes and that uploads make."`
	S3Bytes     byteSize `name:"s3-bytes" placeholder:"SIZE" default:"4GiB" group:"S3" help:"Maximum size of all files of such a workspace."`
	S3FileSize  byteSize `name:"s3-file-size" placeholder:"SIZE" default:"1GiB" group:"S3" help:"Most bytes of one file; larger ones are left out and named, and refused as uploads."`
}

// prefixS3 is the prefix of the keys of all workspaces in the operator's bucket.
const prefixS3 = "sandbox/"

// check returns an error for the first flag that is out of range.
func (f s3Flags) check() error {
	switch {
	case f.S3Bucket == "" && (f.S3Region != "" || f.S3Endpoint != "" || f.S3PathStyle):
		return schemas.Invalidf("s3-bucket", "is missing, and more is said of it: name the bucket")
	case f.S3Files < 1:
		return schemas.Invalidf("s3-files", "%d is out of range: at least 1", f.S3Files)
	case f.S3Bytes < 1:
		return schemas.Invalidf("s3-bytes", "%s is out of range: at least 1", f.S3Bytes)
	case f.S3FileSize < 1:
		return schemas.Invalidf("s3-file-size", "%s is out of range: at least 1", f.S3FileSize)
	}
	if f.S3Endpoint != "" {
		if u, err := url.Parse(f.S3Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return schemas.Invalidf("s3-endpoint", "%q is not a URL: write it as https://s3.example.com", schemas.Quotable(f.S3Endpoint))
		}
	}
	return nil
}

// s3Access opens the buckets of workspaces.
type s3Access struct {
	flags       s3Flags
	credentials bucket.Credentials // the operator's
	region      string
	private     []netip.Prefix
	budget      *bucket.Budget      // of all buckets of this process
	ours        *bucket.Connections // to the operator's bucket
	theirs      *bucket.Connections // to buckets of accounts
	value       func(ctx context.Context, a schemas.AccountID, ref string) (string, error)
	n           *node
}

func (n *node) newS3(f s3Flags, operator operatorFlags) (*s3Access, error) {
	a := &s3Access{flags: f, private: operator.PrivateNetworks, budget: bucket.DefaultBudget(), value: n.records.Value, n: n,
		ours: bucket.NewConnections(false, nil), theirs: bucket.NewConnections(true, operator.PrivateNetworks)}
	if f.S3Bucket == "" {
		return a, nil
	}
	var err error
	a.credentials, a.region, err = bucket.Environment(context.Background(), f.S3Region)
	return a, err
}

// open opens the bucket that a workspace's record names, or else the operator's. The operator's credentials are used for the operator's
// bucket only, below the workspace's own prefix. Code unsupported: the record names none, and the operator has none.
func (a *s3Access) open(ctx context.Context, w schemas.Workspace) (*bucket.Bucket, error) {
	own := prefixS3 + schemas.Namespace(w.Account, w.ID) + "/"
	if w.Bucket.Name == "" {
		if a.flags.S3Bucket == "" {
			return nil, &schemas.Error{Code: schemas.Unsupported, Field: "workspace", Message: "config.storage of " + schemas.Quotable(w.Name) +
				" names no bucket, and the operator of this worker has none: name one of your own with its credentials, or have the worker started " +
				"with --s3-bucket"}
		}
		o := a.operator()
		o.Prefix, o.Account = own, string(w.Account)
		return bucket.Open(o)
	}
	var keys [3]string
	for i, ref := range []string{w.Bucket.AccessKeyID, w.Bucket.SecretAccessKey, w.Bucket.SessionToken} {
		if ref == "" {
			continue
		}
		var err error
		if keys[i], err = a.value(ctx, w.Account, ref); err != nil {
			return nil, err
		}
	}
	return bucket.Open(bucket.Options{
		Bucket: w.Bucket.Name, Prefix: cmp.Or(w.Bucket.Prefix, own), Region: w.Bucket.Region, Endpoint: w.Bucket.Endpoint,
		PathStyle: w.Bucket.PathStyle, Credentials: bucket.Static(keys[0], keys[1], keys[2]), Public: true, Private: a.private,
		Connections: a.theirs, Budget: a.budget, Account: string(w.Account), Log: a.n.log.With("part", "s3"),
	})
}

// operator returns the options of the operator's bucket.
func (a *s3Access) operator() bucket.Options {
	f := a.flags
	o := bucket.Options{
		Bucket: f.S3Bucket, Region: cmp.Or(f.S3Region, a.region), Endpoint: f.S3Endpoint, PathStyle: f.S3PathStyle, Credentials: a.credentials,
		Connections: a.ours, Budget: a.budget,
	}
	if a.n != nil {
		o.Log = a.n.log.With("part", "s3")
	}
	return o
}

// reader opens the files of a workspace on S3 read-only, as they are in the bucket. It returns nil if the record names no bucket and the
// operator has none.
func (a *s3Access) reader(ctx context.Context, w schemas.Workspace) (workspacefs.FS, error) {
	if w.Bucket.Name == "" && a.flags.S3Bucket == "" {
		return nil, nil //nolint:nilnil // it is how Worker.Reader says so
	}
	b, err := a.open(ctx, w)
	if err != nil {
		return nil, err
	}
	return b.Reader(), nil
}

// files opens the files of a workspace on S3 for reading and writing.
func (a *s3Access) files(ctx context.Context, w schemas.Workspace) (workspacefs.FS, error) {
	b, err := a.open(ctx, w)
	if err != nil {
		return nil, err
	}
	return b.Files(), nil
}

// serve configures a worker to serve workspaces on S3. If the provider works on copies of files, it also copies them between buckets and
// instances.
func (a *s3Access) serve(w *workers.Worker, name string, p providers.Provider) {
	limits := filesync.Limits{Files: a.flags.S3Files, Bytes: int64(a.flags.S3Bytes), FileSize: int64(a.flags.S3FileSize)}
	w.Reader, w.OnlyS3 = a.reader, a.flags.S3Only
	w.BucketFiles, w.BucketPlaces = a.files, []streams.FilesPlace{streams.FilesInOwnBucket}
	if a.flags.S3Bucket != "" {
		w.BucketPlaces = append(w.BucketPlaces, streams.FilesInBucket)
	}
	w.BucketRoom = &files.Room{Files: limits.Files, Bytes: limits.Bytes, FileSize: limits.FileSize}
	filer, ok := providers.As[providers.Filer](p)
	if !ok || providers.ProfileOf(p).Storage != schemas.StorageCopy {
		return
	}
	w.Copies = &filesync.Copies{
		Files: filer, Bucket: a.open, Workspace: a.n.records.Workspace, Dir: filepath.Join(string(a.n.dir), "s3", name),
		Limits:  limits,
		JobRuns: workers.JobRuns(a.n.bus), Log: a.n.log.With("part", "s3"),
	}
}

// examineS3 checks access to the operator's bucket, if one is named.
func (f s3Flags) examineS3(ctx context.Context) []finding {
	const about, within = "s3", 30 * time.Second
	if err := f.check(); err != nil {
		return []finding{{about, failing, err.Error(), ""}}
	}
	if f.S3Bucket == "" {
		return []finding{{about, worth, "no bucket is named: workspaces on S3 need one of their own",
			"for workspaces on S3 only: docs/guides/s3-workspaces.md"}}
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	credentials, region, err := bucket.Environment(ctx, f.S3Region)
	if err != nil {
		return []finding{{about, failing, err.Error(), "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what else Amazon's programs take"}}
	}
	o := (&s3Access{flags: f, credentials: credentials, region: region}).operator()
	o.Prefix = prefixS3
	b, err := bucket.Open(o)
	if err == nil {
		defer b.Close()
		err = b.Check(ctx)
	}
	if err != nil {
		return []finding{{about, failing, schemas.Public(err).Message, "workspaces on S3 would fail: correct the bucket, its region and the " +
			"credentials, which list, read, write and remove below " + prefixS3}}
	}
	return []finding{{about, good, "the bucket " + f.S3Bucket + " takes, gives back and removes files, and keeps conditions", ""}}
}
