package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/sandjet/sandjet/schemas"
)

// checkPrefix is where [Bucket.Check] writes, beside all workspaces.
const checkPrefix = ".sandjet-check/"

// Check tests whether the bucket exists, whether the credentials may list, write, read and remove, and whether the service enforces
// conditions. It writes a small file beside the workspaces and removes it. Code: unsupported, the service ignores a condition, so that
// writers could overwrite each other's files.
func (b *Bucket) Check(ctx context.Context) error {
	if err := b.pages(ctx, checkPrefix, "", 1, func(*s3.ListObjectsV2Output) error { return nil }); err != nil {
		return err
	}
	name := checkPrefix + rand.Text()
	put := func(etag, text string) (Object, error) {
		sum := sha256.Sum256([]byte(text))
		return b.Put(ctx, name, etag, hex.EncodeToString(sum[:]), bytes.NewReader([]byte(text)), int64(len(text)))
	}
	first, err := put("", "first")
	if err != nil {
		return err
	}
	last := first
	defer func() {
		ctx, cancel := within(context.WithoutCancel(ctx), requestWithin/4)
		defer cancel()
		_ = b.Remove(ctx, name, last.ETag)
	}()
	if o, err := put("", "second"); schemas.CodeOf(err) != schemas.Conflict {
		if err == nil {
			last = o
		}
		return ignored("If-None-Match", err)
	}
	second, err := put(first.ETag, "third")
	if err != nil {
		return err
	}
	last = second
	if o, err := put(first.ETag, "fourth"); schemas.CodeOf(err) != schemas.Conflict {
		if err == nil {
			last = o
		}
		return ignored("If-Match", err)
	}
	data, _, err := b.Get(ctx, name, second.ETag, 0, PartSize)
	if err != nil {
		return err
	}
	if string(data) != "third" {
		return schemas.OpErrorf(schemas.Unsupported, "s3", "the service gives back another content than was written")
	}
	return b.Remove(ctx, name, second.ETag)
}

func ignored(condition string, err error) error {
	if err != nil {
		return err
	}
	return schemas.OpErrorf(schemas.Unsupported, "s3", "the service ignores %s: writers would overwrite one another", condition)
}
