package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// S3 cannot append. A file of [schemas.UploadsFolder] is therefore a folder of pieces: an object for each append, which are merged into
// larger ones as they come, since S3 puts no parts together that are smaller than leastPart. Rename puts them together on the service's side.
//
// The keys below the folder: "+", a marker that is there while the upload is, with a random content; then the pieces, the latest first, by
// how far they begin from the end of all numbers and by whose upload they are. So one short list says how long a file is, and of several
// writers one makes the piece at an offset. A writer that was suspended while another one completed the upload, and a third began one of
// that name, leaves a piece that belongs to no upload: it is skipped.
const (
	markerPiece = "+"
	// leastPart is the least of a part in S3, but for the last.
	leastPart = 5 << 20
	// fullPart is how many bytes of small pieces are merged into one: another append would not fit.
	fullPart = PartSize - schemas.MaxFileChunk
	// manyPieces is how many small pieces are merged whatever they have.
	manyPieces = 32
	// seenPieces is how many keys a read of the end of an upload lists: small ones and those that a merge that broke off has left.
	seenPieces = 100
	// mostPieces is how many objects of an upload are held: one of 16 GiB has two thousand. Other programs may write there too.
	mostPieces = 20_000
	// mostStaged is how many uploads a list of them has.
	mostStaged = 20 * schemas.MaxUploads
	// inParallel is how many reads of one change run at the same time, and sideBySide how many requests without content: copies on the
	// service's side and removals, of which a file of 16 GiB needs two thousand within the half minute of an answer.
	inParallel, sideBySide = 8, 32
)

// isUpload reports whether a name is that of an upload in progress.
func isUpload(name string) bool {
	return path.Dir(name) == schemas.UploadsFolder && !strings.Contains(path.Base(name), ".")
}

// piece is an object that stores a piece of an upload.
type piece struct {
	Object

	offset int64
}

func (p piece) end() int64 { return p.offset + p.Size }

// staged is the listed state of an upload: only its end, or all pieces.
type staged struct {
	name     string
	nonce    string  // of the upload; empty: there is none
	marker   string  // the ETag of its marker
	pieces   []piece // by their offsets; those that are of no use are in left
	left     []string
	size     int64
	modified time.Time
}

func (u *staged) pieceAt(offset int64) string {
	return fmt.Sprintf("%s/%016x-%s", u.name, uint64(math.MaxInt64-offset), u.nonce)
}

// add adds an entry of the list of an upload's folder.
func (u *staged) add(o Object) {
	if o.Modified.After(u.modified) {
		u.modified = o.Modified
	}
	base := path.Base(o.Name)
	if base == markerPiece {
		sum := sha256.Sum256([]byte(o.ETag))
		u.nonce, u.marker = hex.EncodeToString(sum[:16]), o.ETag
		return
	}
	var from uint64
	if n, err := fmt.Sscanf(base, "%016x-", &from); n != 1 || err != nil || from > math.MaxInt64 || u.nonce == "" {
		return
	}
	p := piece{o, math.MaxInt64 - int64(from)}
	if o.Name != u.pieceAt(p.offset) {
		u.left = append(u.left, o.Name)
		return
	}
	u.pieces = append(u.pieces, p)
	u.size = max(u.size, p.end())
}

// order sorts the pieces by offset, and sets aside those that were merged into larger ones. Code: internal, one is missing.
func (u *staged) order(from int64) error {
	slices.SortFunc(u.pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(b.Size, a.Size))
	})
	at, kept := from, u.pieces[:0]
	for _, p := range u.pieces {
		switch {
		case p.end() <= at && p.Size > 0:
			u.left = append(u.left, p.Name)
		case p.offset != at:
			return schemas.OpErrorf(schemas.Internal, "upload", "%d bytes of the upload are missing at %d: begin again", p.offset-at, at)
		default:
			kept, at = append(kept, p), p.end()
		}
	}
	u.pieces = kept
	return nil
}

// lookUp lists an upload: all of its pieces, or only those at its end.
func (f files) lookUp(ctx context.Context, name string, all bool) (*staged, error) {
	u := &staged{name: name}
	most := int32(seenPieces)
	if all {
		most = 0
	}
	large := false
	err := f.b.pages(ctx, name+"/", "", most, func(page *s3.ListObjectsV2Output) error {
		for _, c := range page.Contents {
			o, is := f.b.object(c)
			if !is || large && !all {
				continue
			}
			if u.add(o); len(u.pieces)+len(u.left) > mostPieces {
				return workspacefs.ErrTooMany
			}
			large = large || o.Size >= leastPart
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, coded(err)
	case u.nonce == "":
		return nil, workspacefs.ErrNotFound
	}
	from := int64(0)
	if !all && len(u.pieces) > 0 {
		from = u.pieces[len(u.pieces)-1].offset // the list begins with the latest
	}
	return u, u.order(from)
}

func (u *staged) info() info {
	return info{name: path.Base(u.name), mode: 0o444, object: Object{Name: u.name, Size: u.size, Modified: u.modified, Upload: u.nonce}}
}

// begin creates an empty upload. Code: ErrExists.
func (f files) begin(ctx context.Context, name string) error {
	err := f.b.put(ctx, name+"/"+markerPiece, "", []byte(rand.Text()), nil)
	if schemas.CodeOf(err) == schemas.Conflict {
		return workspacefs.ErrExists
	}
	return err
}

// extend appends a piece to an upload, and merges small pieces. Codes: ErrNotFound, ErrChanged.
func (f files) extend(ctx context.Context, name string, content []byte, mode workspacefs.Mode, was *int64) error {
	if mode == workspacefs.Create {
		if err := f.begin(ctx, name); err != nil {
			return err
		}
	}
	u, err := f.lookUp(ctx, name, false)
	if err != nil {
		return err
	}
	if was != nil && u.size != *was || mode == workspacefs.Create && u.size > 0 {
		return workspacefs.ErrChanged
	}
	if len(content) == 0 {
		return nil
	}
	at := u.pieceAt(u.size)
	if err := f.b.put(ctx, at, "", content, nil); err != nil {
		return coded(err)
	}
	small := u.pieces
	if len(small) > 0 && small[0].Size >= leastPart {
		small = small[1:]
	}
	n, bytes := 0, int64(0)
	for n < len(small) && bytes+small[n].Size <= PartSize {
		bytes += small[n].Size
		n++
	}
	if bytes < fullPart && n < manyPieces || n < 2 {
		return nil
	}
	return f.merge(ctx, small[:n], u.left)
}

// merge joins adjacent pieces under the name of the first. It changes nothing if another process was faster.
func (f files) merge(ctx context.Context, pieces []piece, left []string) error {
	data, done, err := f.join(ctx, pieces)
	if err != nil {
		return err
	}
	err = f.b.put(ctx, pieces[0].Name, pieces[0].ETag, data, nil)
	done()
	if schemas.CodeOf(err) == schemas.Conflict || schemas.CodeOf(err) == schemas.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range pieces[1:] {
		left = append(left, p.Name)
	}
	return f.b.drop(ctx, left)
}

// join reads pieces of together at most one part. The caller calls done to release their room in the budget.
func (f files) join(ctx context.Context, pieces []piece) (data []byte, done func(), err error) {
	total := int64(0)
	for _, p := range pieces {
		total += p.Size
	}
	if done, err = f.b.budget.take(ctx, f.b.account, total); err != nil {
		return nil, nil, err
	}
	data = make([]byte, total)
	var wg sync.WaitGroup
	errs := make([]error, len(pieces))
	slots := make(chan struct{}, inParallel)
	at := int64(0)
	for i, p := range pieces {
		into := data[at : at+p.Size]
		at += p.Size
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if len(into) == 0 {
				return
			}
			got, _, err := f.b.Get(ctx, p.Name, p.ETag, 0, len(into))
			if err == nil && len(got) != len(into) {
				err = workspacefs.ErrChanged
			}
			copy(into, got)
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		done()
		return nil, nil, coded(err)
	}
	return data, done, nil
}

// complete turns an upload into a file, which replaces the version that there describes, or none. A small one is written; the pieces of a
// large one are joined by the service. When repeated it makes the same file; if the file exists already it only removes the upload. So a
// worker that was suspended meanwhile replaces only a version that it has seen. Codes: ErrNotFound, ErrChanged.
func (f files) complete(ctx context.Context, name, to string, there fs.FileInfo) error {
	u, err := f.lookUp(ctx, name, true)
	if err != nil {
		if u == nil || there == nil || !is(there, u.nonce) {
			return err
		}
		return f.discard(ctx, u) // a removal broke off, and some pieces are gone
	}
	if there != nil && is(there, u.nonce) && there.Size() == u.size {
		return f.discard(ctx, u)
	}
	etag := ""
	if there != nil {
		etag = cmp.Or(there.(info).object.ETag, anyVersion) //nolint:errcheck // find makes no other
	}
	if err := f.assembleUpload(ctx, u, to, etag); err != nil {
		// The answer to the request that made the file may have been lost, and its repetition refused.
		if made, herr := f.b.Head(ctx, to); herr != nil || made.Upload != u.nonce || made.Size != u.size {
			return coded(err)
		}
	}
	return f.discard(ctx, u)
}

// is reports whether a file was made from the upload with that nonce.
func is(there fs.FileInfo, nonce string) bool {
	i, ok := there.(info)
	return ok && nonce != "" && i.object.Upload == nonce
}

// assembleUpload makes a file of the pieces of an upload, in place of the version etag.
func (f files) assembleUpload(ctx context.Context, u *staged, to, etag string) error {
	key, err := f.b.key(to)
	if err != nil {
		return workspacefs.ErrTooLong
	}
	metadata := map[string]string{uploadField: u.nonce}
	if u.size <= PartSize {
		data, done, err := f.join(ctx, u.pieces)
		if err != nil {
			return err
		}
		defer done()
		sum := NewSum()
		_, _ = sum.Write(data) // it never fails
		metadata[hashField] = sum.Hash()
		return f.b.put(ctx, to, etag, data, metadata)
	}
	var sources []source
	var tail []piece
	for _, p := range u.pieces {
		if p.Size < leastPart || len(tail) > 0 {
			tail = append(tail, p)
			continue
		}
		from, err := f.b.key(p.Name)
		if err != nil {
			return err
		}
		sources = append(sources, source{key: from, etag: p.ETag})
	}
	data, done, err := f.join(ctx, tail)
	if err != nil {
		return err
	}
	defer done()
	return f.b.assemble(ctx, key, etag, sources, data, metadata)
}

// discard removes an upload. It removes the marker last, so that an interrupted removal can be repeated, and never the marker of another
// upload that has the same name by now.
func (f files) discard(ctx context.Context, u *staged) error {
	names := u.left
	for _, p := range u.pieces {
		names = append(names, p.Name)
	}
	if err := f.b.drop(ctx, names); err != nil {
		return err
	}
	err := f.b.Remove(ctx, u.name+"/"+markerPiece, u.marker)
	if schemas.CodeOf(err) == schemas.Conflict {
		return nil
	}
	return err
}

// discardLost removes pieces of uploads without a marker, which a worker wrote that was suspended while another one completed the upload.
// A new upload of the same name writes its marker before its first piece, so nothing is removed if there is a marker. Code: ErrNotFound.
func (f files) discardLost(ctx context.Context, name string) error {
	var lost []string
	err := f.b.List(ctx, name+"/", func(o Object) error {
		if lost = append(lost, o.Name); len(lost) == mostPieces {
			return fs.SkipAll // the others are removed with the next upload
		}
		return nil
	})
	if err != nil && err != fs.SkipAll { //nolint:errorlint // it is returned as it is
		return coded(err)
	}
	marker := name + "/" + markerPiece
	if len(lost) == 0 || slices.Contains(lost, marker) {
		return workspacefs.ErrNotFound
	}
	if _, err := f.b.Head(ctx, marker); schemas.CodeOf(err) != schemas.NotFound {
		return coded(err)
	}
	return f.b.drop(ctx, lost)
}

// uploads lists the uploads and the notes beside them.
func (f files) uploads(ctx context.Context, each func(workspacefs.Entry) error) error {
	found := map[string]*staged{}
	notes := listed{}
	err := f.b.List(ctx, schemas.UploadsFolder+"/", func(o Object) error {
		rest := strings.TrimPrefix(o.Name, schemas.UploadsFolder+"/")
		id, _, below := strings.Cut(rest, "/")
		switch {
		case !below:
			notes[rest] = o
		case isUpload(schemas.UploadsFolder + "/" + id):
			u := found[id]
			if u == nil {
				u = &staged{name: schemas.UploadsFolder + "/" + id}
				found[id] = u
			}
			u.add(o)
			u.pieces, u.left = nil, nil
		}
		if len(found)+len(notes) > mostStaged {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil && err != fs.SkipAll { //nolint:errorlint // it is returned as it is
		return coded(err)
	}
	for id, u := range found {
		notes[id] = u.info().object
	}
	for id := range notes {
		if err := each(workspacefs.Entry{Name: id, Source: notes}); err != nil {
			return err
		}
	}
	return nil
}

// anyVersion as an ETag of put writes whatever is there.
const anyVersion = "*"

// put writes an object in one request, in place of a version, only if there is none (""), or unconditionally. Code: conflict.
func (b *Bucket) put(ctx context.Context, name, etag string, data []byte, metadata map[string]string) error {
	key, err := b.key(name)
	if err != nil {
		return err
	}
	ctx, cancel := within(ctx, transferWithin)
	defer cancel()
	in := &s3.PutObjectInput{
		Bucket: &b.bucket, Key: &key, Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))), Metadata: metadata,
	}
	if etag != anyVersion {
		in.IfMatch, in.IfNoneMatch = conditions(etag)
	}
	for attempt := 1; ; attempt++ {
		_, err = b.client.PutObject(ctx, in)
		if !raced(err) || attempt == races || !raceAgain.Sleep(ctx, attempt) {
			return b.refusal(ctx, "write "+quoted(name), err)
		}
		in.Body = bytes.NewReader(data)
	}
}

// drop removes objects, in any version.
func (b *Bucket) drop(ctx context.Context, names []string) error {
	return parallel(ctx, names, func(name string) error {
		key, err := b.key(name)
		if err != nil {
			return err
		}
		ctx, cancel := within(ctx, requestWithin)
		defer cancel()
		_, err = b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: &key})
		if err = b.refusal(ctx, "remove "+quoted(name), err); schemas.CodeOf(err) == schemas.NotFound {
			return nil
		}
		return err
	})
}

// parallel calls do for each element, several at a time, and returns the first error.
func parallel[T any](ctx context.Context, list []T, do func(T) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	slots := make(chan struct{}, sideBySide)
	for _, one := range list {
		slots <- struct{}{}
		mu.Lock()
		stop := first != nil || ctx.Err() != nil
		mu.Unlock()
		if stop {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(one); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	wg.Wait()
	if first == nil && ctx.Err() != nil {
		first = context.Cause(ctx)
	}
	return first
}

// source is the range of an object from which a part is copied.
type source struct {
	key, etag string
	span      string // "bytes=0-1"; empty: all of it
}

// assemble makes an object of the sources, in order, followed by tail, in place of a version as put does. The object becomes visible only
// when it is complete.
func (b *Bucket) assemble(ctx context.Context, key, etag string, sources []source, tail []byte, metadata map[string]string) (err error) {
	begin, cancel := within(ctx, requestWithin)
	defer cancel()
	up, err := b.client.CreateMultipartUpload(begin, &s3.CreateMultipartUploadInput{Bucket: &b.bucket, Key: &key, Metadata: metadata})
	if err != nil {
		return b.refusal(ctx, "begin a file", err)
	}
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := within(context.WithoutCancel(ctx), requestWithin/4)
		defer cancel()
		_, _ = b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.bucket, Key: &key, UploadId: up.UploadId})
	}()
	parts := make([]types.CompletedPart, len(sources), len(sources)+1)
	numbers := make([]int, len(sources))
	for i := range numbers {
		numbers[i] = i
	}
	err = parallel(ctx, numbers, func(i int) error {
		s := sources[i]
		ctx, cancel := within(ctx, transferWithin)
		defer cancel()
		number := int32(i + 1)
		p, err := b.client.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
			Bucket: &b.bucket, Key: &key, UploadId: up.UploadId, PartNumber: &number,
			CopySource: b.copySource(s.key), CopySourceIfMatch: nonEmpty(s.etag), CopySourceRange: nonEmpty(s.span),
		})
		if err != nil {
			return b.refusal(ctx, "copy a part of a file", err)
		}
		parts[i] = types.CompletedPart{ETag: p.CopyPartResult.ETag, PartNumber: &number}
		return nil
	})
	if err != nil {
		return err
	}
	if len(tail) > 0 {
		number := int32(len(sources) + 1)
		ctx, cancel := within(ctx, transferWithin)
		defer cancel()
		p, err := b.client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &b.bucket, Key: &key, UploadId: up.UploadId, PartNumber: &number, Body: bytes.NewReader(tail),
		})
		if err != nil {
			return b.refusal(ctx, "write a part of a file", err)
		}
		parts = append(parts, types.CompletedPart{ETag: p.ETag, PartNumber: &number})
	}
	end, cancelEnd := within(ctx, transferWithin)
	defer cancelEnd()
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &b.bucket, Key: &key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}
	if etag != anyVersion {
		in.IfMatch, in.IfNoneMatch = conditions(etag)
	}
	for attempt := 1; ; attempt++ {
		_, err = b.client.CompleteMultipartUpload(end, in)
		if !raced(err) || attempt == races || !raceAgain.Sleep(end, attempt) {
			return b.refusal(ctx, "complete a file", err)
		}
	}
}

// version returns a text that differs for each version of a file. For a file that was uploaded in pieces it contains the upload's nonce,
// by which a repeated request recognises that its upload has become this file.
func (o Object) version() string {
	if o.Upload != "" {
		return fmt.Sprintf("upload %s %d", o.Upload, o.Size)
	}
	return o.ETag
}

// validNonce reports whether a text from metadata can be an upload's nonce: other programs write metadata too.
func validNonce(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && s != ""
}
