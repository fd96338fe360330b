package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/sandjet/sandjet/schemas"
)

// ErrTorn says that a file had another content when it was read than its hash says: it was changed meanwhile, and nothing was written.
var ErrTorn = errors.New("the file was changed while it was read")

const (
	// maxParts is how many parts a file may have in S3.
	maxParts = 10_000
	// maxConfirm is how much of a file is read to find out whether it is there already. A larger one counts as another version.
	maxConfirm = 64 << 20
)

// Put writes a file: the size bytes of from, whose SHA-256 is hash. With an etag it replaces exactly that version; without one the file
// must be new. It recognises its own earlier write by the content if an answer was lost, so that a repeated write is no conflict.
//
// Codes: conflict (there is another version, or one at all), and [ErrTorn].
func (b *Bucket) Put(ctx context.Context, name, etag, hash string, from io.ReaderAt, size int64) (Object, error) {
	key, err := b.key(name)
	if err != nil {
		return Object{}, err
	}
	if size > PartSize*maxParts {
		return Object{}, schemas.OpErrorf(schemas.Invalid, "s3", "%s has %d bytes: at most %d can be written",
			quoted(name), size, int64(PartSize)*maxParts)
	}
	var (
		sum  *Sum   // of what was read
		mine string // the ETag in the answer
	)
	for attempt := 1; ; attempt++ {
		sum = NewSum()
		if size <= PartSize {
			mine, err = b.putWhole(ctx, key, etag, hash, from, size, sum)
		} else {
			mine, err = b.putParts(ctx, key, etag, hash, from, size, sum)
		}
		if !raced(err) || attempt == races || !raceAgain.Sleep(ctx, attempt) {
			break
		}
	}
	if errors.Is(err, ErrTorn) {
		return Object{}, err
	}
	err = b.refusal(ctx, "write "+quoted(name), err)
	code := schemas.CodeOf(err)
	if err != nil && code != schemas.Conflict && code != schemas.NotFound && code != schemas.Unavailable {
		return Object{}, err
	}
	// What is there says what came of it. That is looked at after a success too: the answers to parts name no version on all services.
	o, headErr := b.Head(ctx, name)
	if headErr == nil {
		var is bool
		if is, headErr = b.wrote(ctx, o, mine, hash, sum); is {
			o.Hash = hash
			return o, nil
		}
	}
	switch {
	case err == nil && headErr == nil: // another writer was faster
		return Object{}, schemas.OpErrorf(schemas.Conflict, "s3", "%s was changed by another writer", quoted(name))
	case err == nil:
		return Object{}, headErr
	case code == schemas.NotFound: // the version to be replaced is gone
		return Object{}, schemas.Wrap(schemas.Conflict, "s3", fmt.Sprintf("%s was removed by somebody else", quoted(name)), err)
	}
	return Object{}, err
}

// wrote reports whether the version o is the result of a write: it has the ETag in the answer to the write, or the same content. If its
// metadata has another hash it was not written by this package with this content, and is not read.
func (b *Bucket) wrote(ctx context.Context, o Object, mine, hash string, sum *Sum) (bool, error) {
	if mine != "" && strings.Trim(mine, `"`) == strings.Trim(o.ETag, `"`) {
		return true, nil
	}
	if o.Hash != hash || sum.Hash() != hash {
		return false, nil
	}
	return b.Holds(ctx, o, sum, maxConfirm)
}

func (b *Bucket) putWhole(ctx context.Context, key, etag, hash string, from io.ReaderAt, size int64, sum *Sum) (string, error) {
	done, err := b.budget.take(ctx, b.account, size)
	if err != nil {
		return "", err
	}
	defer done()
	data := make([]byte, size)
	if n, err := from.ReadAt(data, 0); int64(n) != size {
		return "", fmt.Errorf("%w: %w", ErrTorn, err)
	}
	_, _ = sum.Write(data) // it never fails
	if sum.Hash() != hash {
		return "", ErrTorn
	}
	in := &s3.PutObjectInput{
		Bucket: &b.bucket, Key: &key, Body: bytes.NewReader(data), ContentLength: &size, Metadata: map[string]string{hashField: hash},
	}
	in.IfMatch, in.IfNoneMatch = conditions(etag)
	ctx, cancel := within(ctx, transferWithin)
	defer cancel()
	out, err := b.client.PutObject(ctx, in)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

// conditions returns the If-Match and If-None-Match conditions of a write.
func conditions(etag string) (match, noneMatch *string) {
	if etag == "" {
		return nil, aws.String("*")
	}
	return &etag, nil
}

// putParts writes a large file in parts. It becomes visible only by the last request, which has the condition. A failed upload is aborted;
// if even that fails, the service's rule for incomplete uploads removes it.
func (b *Bucket) putParts(ctx context.Context, key, etag, hash string, from io.ReaderAt, size int64, sum *Sum) (mine string, err error) {
	begin, cancel := within(ctx, requestWithin)
	defer cancel()
	u, err := b.client.CreateMultipartUpload(begin, &s3.CreateMultipartUploadInput{
		Bucket: &b.bucket, Key: &key, Metadata: map[string]string{hashField: hash},
	})
	if err != nil {
		return "", err
	}
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := within(context.WithoutCancel(ctx), requestWithin/4)
		defer cancel()
		_, _ = b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.bucket, Key: &key, UploadId: u.UploadId})
	}()
	var parts []types.CompletedPart
	for at := int64(0); at < size; at += PartSize {
		part, err := b.putPart(ctx, key, u.UploadId, int32(len(parts)+1), io.NewSectionReader(from, at, min(PartSize, size-at)), sum)
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	if sum.Hash() != hash {
		return "", ErrTorn
	}
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &b.bucket, Key: &key, UploadId: u.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}
	in.IfMatch, in.IfNoneMatch = conditions(etag)
	end, cancel := within(ctx, transferWithin)
	defer cancel()
	out, err := b.client.CompleteMultipartUpload(end, in)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

// putPart writes one part, and adds it to sum. It holds the room in the budget for this part only, so that a large file takes turns with
// others.
func (b *Bucket) putPart(ctx context.Context, key string, upload *string, number int32, from *io.SectionReader, sum *Sum) (
	types.CompletedPart, error,
) {
	done, err := b.budget.take(ctx, b.account, from.Size())
	if err != nil {
		return types.CompletedPart{}, err
	}
	defer done()
	data := make([]byte, from.Size())
	if _, err := io.ReadFull(from, data); err != nil {
		return types.CompletedPart{}, fmt.Errorf("%w: %w", ErrTorn, err)
	}
	_, _ = sum.Write(data) // it never fails
	ctx, cancel := within(ctx, transferWithin)
	defer cancel()
	p, err := b.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &b.bucket, Key: &key, UploadId: upload, PartNumber: &number, Body: bytes.NewReader(data),
	})
	if err != nil {
		return types.CompletedPart{}, err
	}
	return types.CompletedPart{ETag: p.ETag, PartNumber: &number}, nil
}

// isEmptyRange reports whether the requested range contains no bytes of the file.
func isEmptyRange(err error) bool {
	answer, ok := errors.AsType[*smithyhttp.ResponseError](err)
	return ok && answer.HTTPStatusCode() == 416
}
