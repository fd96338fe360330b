package bucket

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

var raceAgain = wait.Backoff{First: 50 * time.Millisecond, Most: time.Second} //nolint:gochecknoglobals // a constant

// Object is one version of a file.
type Object struct {
	Name     string // below the prefix
	Size     int64
	ETag     string // of the version
	Modified time.Time
	// Hash is the SHA-256 of the content by the object's metadata, which other programs may have copied from another content;
	// [Bucket.List] does not know it.
	Hash string
	// Upload is of which upload in pieces the file was made, by its metadata; see [Bucket.Files]. [Bucket.List] does not know it.
	Upload string
	// Problem says why the rest of the key is no name of a file; see the function Problem. Then Name is that rest, and nothing else can be
	// done with it. Markers of folders, which are empty and end with a slash, are not listed.
	Problem string
}

// List calls each for all files whose names begin with below, in the byte order of the keys. It stops at the first error of each and
// returns it. At most a page of a thousand files is in memory.
func (b *Bucket) List(ctx context.Context, below string, each func(Object) error) error {
	return b.pages(ctx, below, "", 0, func(page *s3.ListObjectsV2Output) error {
		for _, o := range page.Contents {
			object, is := b.object(o)
			if !is {
				continue
			}
			if err := each(object); err != nil {
				return err
			}
		}
		return nil
	})
}

// pages reads a list page by page; most, if above 0, is how many keys are requested in all.
func (b *Bucket) pages(ctx context.Context, below, delimiter string, most int32, each func(*s3.ListObjectsV2Output) error) error {
	in := &s3.ListObjectsV2Input{Bucket: &b.bucket, Prefix: aws.String(b.prefix + below), Delimiter: nonEmpty(delimiter)}
	if most > 0 {
		in.MaxKeys = &most
	}
	for {
		page, err := b.page(ctx, in)
		if err != nil {
			return err
		}
		if err := each(page); err != nil {
			return err
		}
		next := aws.ToString(page.NextContinuationToken)
		if most > 0 || !aws.ToBool(page.IsTruncated) {
			return nil
		}
		if next == "" || next == aws.ToString(in.ContinuationToken) {
			return schemas.OpErrorf(schemas.Unavailable, "s3", "the list of the bucket %s does not continue where it ended",
				schemas.Quotable(b.bucket))
		}
		in.ContinuationToken = &next
	}
}

func (b *Bucket) page(ctx context.Context, in *s3.ListObjectsV2Input) (*s3.ListObjectsV2Output, error) {
	ctx, cancel := within(ctx, requestWithin)
	defer cancel()
	for attempt := 1; ; attempt++ { // as of reads: a list that breaks off is not repeated by the library
		page, err := b.client.ListObjectsV2(ctx, in)
		_, refused := errors.AsType[smithy.APIError](err)
		if err == nil || refused || attempt == attempts || ctx.Err() != nil || !again.Sleep(ctx, attempt) {
			return page, b.refusal(ctx, "list the files", err)
		}
	}
}

// object converts an entry of a list; false if it does not belong to the workspace's files.
func (b *Bucket) object(o types.Object) (Object, bool) {
	name, ok := strings.CutPrefix(aws.ToString(o.Key), b.prefix)
	folder := aws.ToInt64(o.Size) == 0 && strings.HasSuffix(name, "/") && Problem(strings.TrimSuffix(name, "/")) == ""
	if !ok || name == "" || folder {
		return Object{}, false
	}
	return Object{
		Name: name, Size: aws.ToInt64(o.Size), ETag: aws.ToString(o.ETag), Modified: aws.ToTime(o.LastModified), Problem: Problem(name),
	}, true
}

// Head returns the description of a file.
func (b *Bucket) Head(ctx context.Context, name string) (Object, error) {
	key, err := b.key(name)
	if err != nil {
		return Object{}, err
	}
	ctx, cancel := within(ctx, requestWithin)
	defer cancel()
	h, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.bucket, Key: &key})
	if err != nil {
		return Object{}, b.refusal(ctx, "look at "+quoted(name), err)
	}
	return Object{
		Name: name, Size: aws.ToInt64(h.ContentLength), ETag: aws.ToString(h.ETag), Modified: aws.ToTime(h.LastModified),
		Hash: hashOf(h.Metadata), Upload: uploadOf(h.Metadata),
	}, nil
}

// Part reads a part of a file like [Bucket.Get], after waiting for room in the budget, and passes it to use. Use must neither retain the
// bytes nor call a method that reads or writes files of a bucket. Part returns the error of use.
func (b *Bucket) Part(ctx context.Context, name, etag string, from int64, n int, use func([]byte, Object) error) error {
	done, err := b.budget.take(ctx, b.account, int64(n))
	if err != nil {
		return err
	}
	defer done()
	data, o, err := b.Get(ctx, name, etag, from, min(n, PartSize))
	if err != nil {
		return err
	}
	return use(data, o)
}

// Get reads a version of a file from an offset: at most n bytes, fewer at the end. With an empty etag it reads the latest version. The
// budget does not count these bytes, so it is for small reads: see [Bucket.Part]. Code: conflict, the version has changed.
func (b *Bucket) Get(ctx context.Context, name, etag string, from int64, n int) ([]byte, Object, error) {
	key, err := b.key(name)
	if err != nil {
		return nil, Object{}, err
	}
	for attempt := 1; ; attempt++ { // a connection that breaks in the middle of a body is not the library's to repeat
		data, o, err := b.get(ctx, name, key, etag, from, n)
		if err == nil || attempt == attempts || !errors.Is(err, errBroken) || !again.Sleep(ctx, attempt) {
			return data, o, err
		}
	}
}

// errBroken is a body that ended before its end.
var errBroken = errors.New("the answer broke off")

func (b *Bucket) get(ctx context.Context, name, key, etag string, from int64, n int) ([]byte, Object, error) {
	ctx, cancel := within(ctx, transferWithin)
	defer cancel()
	in := &s3.GetObjectInput{Bucket: &b.bucket, Key: &key, IfMatch: nonEmpty(etag)}
	if n <= 0 {
		return nil, Object{}, schemas.OpErrorf(schemas.Internal, "s3", "a read of %d bytes", n)
	}
	in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", from, from+int64(n)-1))
	g, err := b.client.GetObject(ctx, in)
	if err != nil && isEmptyRange(err) { // of an empty file, or behind the end of one
		o, err := b.Head(ctx, name)
		if err == nil && etag != "" && o.ETag != etag {
			err = schemas.OpErrorf(schemas.Conflict, "s3", "%s was changed while it was read", quoted(name))
		}
		return nil, o, err
	}
	if err != nil {
		return nil, Object{}, b.refusal(ctx, "read "+quoted(name), err)
	}
	defer g.Body.Close() //nolint:errcheck // it was only read
	o := Object{Name: name, Size: wholeSize(g), ETag: aws.ToString(g.ETag), Modified: aws.ToTime(g.LastModified), Hash: hashOf(g.Metadata),
		Upload: uploadOf(g.Metadata)}
	want := min(int64(n), max(o.Size-from, 0))
	data := make([]byte, want) // not a buffer that grows: it would take twice of what the budget has given
	got, err := io.ReadFull(g.Body, data)
	more, _ := g.Body.Read(make([]byte, 1)) // a service that knows no ranges sends the whole file
	if err != nil || more > 0 {
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
			return nil, o, context.Cause(ctx)
		}
		return nil, o, schemas.Wrap(schemas.Unavailable, "s3", fmt.Sprintf("read %s: %d of %d bytes came", quoted(name), got+more, want),
			errors.Join(errBroken, err))
	}
	return data, o, nil
}

// wholeSize returns the size of the file of which g is a part.
func wholeSize(g *s3.GetObjectOutput) int64 {
	if _, whole, ok := strings.Cut(aws.ToString(g.ContentRange), "/"); ok {
		var n int64
		if _, err := fmt.Sscan(whole, &n); err == nil {
			return n
		}
	}
	return aws.ToInt64(g.ContentLength)
}

// Remove removes a version of a file; it is no error if there is none. Code: conflict, the version has changed.
func (b *Bucket) Remove(ctx context.Context, name, etag string) error {
	key, err := b.key(name)
	if err != nil {
		return err
	}
	// Not every service looks at the condition of a removal: who looks before it leaves another writer a moment only.
	switch o, err := b.Head(ctx, name); {
	case schemas.CodeOf(err) == schemas.NotFound:
		return nil
	case err != nil:
		return err
	case o.ETag != etag:
		return schemas.OpErrorf(schemas.Conflict, "s3", "%s was changed by another writer", quoted(name))
	}
	ctx, cancel := within(ctx, requestWithin)
	defer cancel()
	for attempt := 1; ; attempt++ {
		_, err = b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: &key, IfMatch: &etag})
		if !raced(err) || attempt == races || !raceAgain.Sleep(ctx, attempt) {
			break
		}
	}
	if err = b.refusal(ctx, "remove "+quoted(name), err); schemas.CodeOf(err) == schemas.NotFound {
		return nil
	}
	return err
}

func quoted(name string) string { return fmt.Sprintf("%q", schemas.Quotable(name)) }

func uploadOf(metadata map[string]string) string {
	for name, value := range metadata {
		if strings.EqualFold(name, uploadField) && validNonce(value) {
			return value
		}
	}
	return ""
}

func hashOf(metadata map[string]string) string {
	h := metadata[hashField]
	if _, err := hex.DecodeString(h); err != nil || len(h) != 64 {
		return ""
	}
	return h
}
