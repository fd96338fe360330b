package s3test

import (
	"crypto/md5" //nolint:gosec // it is what S3 makes ETags of
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Each runs a test with the server in memory and, in the long form, with versitygw too, which verifies the behavior of the former.
func Each(t *testing.T, bucket string, test func(*testing.T, Server)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(t, Memory(t, bucket)) })
	t.Run("versitygw", func(t *testing.T) { test(t, Start(t, bucket)) })
}

// Memory starts a server in this process that stores objects in memory. It implements what package bucket uses: paged lists, ranges,
// copies, conditional reads, writes and removals, multipart uploads, and metadata. It accepts any signature. It ends with the test.
func Memory(t testing.TB, buckets ...string) Server {
	t.Helper()
	m := &memory{buckets: map[string]map[string]object{}, uploads: map[string]*upload{}}
	for _, b := range buckets {
		m.buckets[b] = map[string]object{}
	}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	return Server{URL: s.URL}
}

type memory struct {
	mu      sync.Mutex
	buckets map[string]map[string]object
	uploads map[string]*upload
}

type object struct {
	data     []byte
	etag     string
	metadata http.Header
	modified time.Time
}

type upload struct {
	metadata http.Header
	parts    map[int][]byte
}

// page is the maximum size of a page of a list. It is small, so that tests read several.
const page = 100

func etagOf(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // as above
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func metadataOf(h http.Header) http.Header {
	kept := http.Header{}
	for name, values := range h {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			kept[name] = values
		}
	}
	return kept
}

// ServeHTTP implements [http.Handler].
func (m *memory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	objects, ok := m.buckets[name]
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && q.Has("list-type"):
		list(w, r, objects)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		get(w, r, objects, key)
	case r.Method == http.MethodPut && q.Has("uploadId"):
		m.putPart(w, r, body)
	case r.Method == http.MethodPut && r.Header.Get("X-Amz-Copy-Source") != "":
		if o, ok := m.source(w, r); ok {
			o.modified = time.Now()
			objects[key] = o
			answer(w, "CopyObjectResult", struct{ ETag string }{o.etag})
		}
	case r.Method == http.MethodPut:
		if met(w, r, objects, key) {
			o := object{body, etagOf(body), metadataOf(r.Header), time.Now()}
			objects[key] = o
			w.Header().Set("ETag", o.etag)
		}
	case r.Method == http.MethodPost && q.Has("uploads"):
		id := strconv.Itoa(len(m.uploads) + 1)
		m.uploads[id] = &upload{metadataOf(r.Header), map[int][]byte{}}
		answer(w, "InitiateMultipartUploadResult", struct{ Bucket, Key, UploadId string }{name, key, id})
	case r.Method == http.MethodPost:
		m.complete(w, r, objects, key, body)
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		delete(m.uploads, q.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete:
		if _, there := objects[key]; !there || met(w, r, objects, key) {
			delete(objects, key)
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

// met reports whether the conditions of a request hold. If not, it has answered the request.
func met(w http.ResponseWriter, r *http.Request, objects map[string]object, key string) bool {
	o, there := objects[key]
	match := r.Header.Get("If-Match")
	switch {
	case match != "" && !there:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	case match != "" && match != o.etag, r.Header.Get("If-None-Match") != "" && there:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		return true
	}
	return false
}

func get(w http.ResponseWriter, r *http.Request, objects map[string]object, key string) {
	o, there := objects[key]
	if !there {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if !met(w, r, objects, key) {
		return
	}
	maps.Copy(w.Header(), o.metadata)
	w.Header().Set("ETag", o.etag)
	w.Header().Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	data, status := o.data, http.StatusOK
	var from, to int
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 {
		if from >= len(data) {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		to = min(to, len(data)-1)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(data)))
		data, status = data[from:to+1], http.StatusPartialContent
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = w.Write(data)
	}
}

func (m *memory) putPart(w http.ResponseWriter, r *http.Request, body []byte) {
	q := r.URL.Query()
	u := m.uploads[q.Get("uploadId")]
	n, err := strconv.Atoi(q.Get("partNumber"))
	if u == nil || err != nil {
		refuse(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	if r.Header.Get("X-Amz-Copy-Source") != "" {
		o, ok := m.source(w, r)
		if !ok {
			return
		}
		var from, to int
		if n, _ := fmt.Sscanf(r.Header.Get("X-Amz-Copy-Source-Range"), "bytes=%d-%d", &from, &to); n == 2 {
			o.data = o.data[from : to+1]
		}
		u.parts[n] = o.data
		answer(w, "CopyPartResult", struct{ ETag string }{etagOf(o.data)})
		return
	}
	u.parts[n] = body
	w.Header().Set("ETag", etagOf(body))
}

// source returns the object that a request copies. If there is none or its condition does not hold, it has answered the request and
// returns false.
func (m *memory) source(w http.ResponseWriter, r *http.Request) (object, bool) {
	from, err := url.PathUnescape(r.Header.Get("X-Amz-Copy-Source"))
	name, key, _ := strings.Cut(from, "/")
	o, there := m.buckets[name][key]
	match := r.Header.Get("X-Amz-Copy-Source-If-Match")
	switch {
	case err != nil || !there:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	case match != "" && match != o.etag:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		return o, true
	}
	return o, false
}

func (m *memory) complete(w http.ResponseWriter, r *http.Request, objects map[string]object, key string, body []byte) {
	id := r.URL.Query().Get("uploadId")
	u := m.uploads[id]
	var asked struct {
		Part []struct {
			PartNumber int    `xml:"PartNumber"`
			ETag       string `xml:"ETag"`
		} `xml:"Part"`
	}
	if u == nil || xml.Unmarshal(body, &asked) != nil {
		refuse(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	if !met(w, r, objects, key) {
		return
	}
	o := object{metadata: u.metadata, modified: time.Now()}
	sums := md5.New() //nolint:gosec // as above
	for _, p := range asked.Part {
		data, there := u.parts[p.PartNumber]
		if !there || etagOf(data) != p.ETag {
			refuse(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		sum := md5.Sum(data) //nolint:gosec // as above
		sums.Write(sum[:])
		o.data = append(o.data, data...)
	}
	o.etag = fmt.Sprintf(`"%x-%d"`, sums.Sum(nil), len(asked.Part))
	objects[key] = o
	delete(m.uploads, id)
	answer(w, "CompleteMultipartUploadResult", struct{ Key, ETag string }{key, o.etag})
}

func list(w http.ResponseWriter, r *http.Request, objects map[string]object) {
	type content struct {
		Key, ETag, LastModified string
		Size                    int
	}
	type prefix struct{ Prefix string }
	var out struct {
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
		CommonPrefixes        []prefix
	}
	q := r.URL.Query()
	most := page
	if n, err := strconv.Atoi(q.Get("max-keys")); err == nil {
		most = min(n, page)
	}
	after, folder := q.Get("continuation-token"), ""
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		rest, below := strings.CutPrefix(key, q.Get("prefix"))
		if !below || key <= after {
			continue
		}
		sub, _, inFolder := strings.Cut(rest, "/")
		common := ""
		if d := q.Get("delimiter"); d == "/" && inFolder {
			common = q.Get("prefix") + sub + "/"
		}
		if common != "" && (common == folder || strings.HasPrefix(after, common)) {
			continue
		}
		if len(out.Contents)+len(out.CommonPrefixes) == most {
			out.IsTruncated = true
			break
		}
		out.NextContinuationToken = key
		if folder = common; common != "" {
			out.CommonPrefixes = append(out.CommonPrefixes, prefix{common})
			continue
		}
		o := objects[key]
		out.Contents = append(out.Contents, content{key, o.etag, o.modified.UTC().Format(time.RFC3339), len(o.data)})
	}
	if !out.IsTruncated {
		out.NextContinuationToken = ""
	}
	answer(w, "ListBucketResult", out)
}

func answer(w http.ResponseWriter, name string, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).EncodeElement(v, xml.StartElement{Name: xml.Name{Local: name}})
}
