package channeltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Fetched is a file that the suite stores in the double, and how the adapter fetches it.
type Fetched struct {
	File channel.InboundFile
	Path string // of the double
	// Guarded is the header that must have the value Shown, which contains a credential: Authorization. Empty: the file is served without
	// a credential.
	Guarded, Shown string
}

// fileContent returns content that is longer than one read.
func fileContent() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 20_000) }

// fetches returns an adapter that can reach only its double. Away counts the requests to other hosts.
func (f *fixture) fetches(t *testing.T) (a channel.Fetcher, away *atomic.Int32) {
	t.Helper()
	if _, ok := f.adapter.(channel.Fetcher); !ok {
		t.Fatal("it fetches no files")
	}
	f.fake.Put(f.Fetched.Path, chatfake.Reply{Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain"}}, Body: fileContent()},
		func(r *http.Request) bool {
			return f.Fetched.Guarded == "" || r.Header.Get(f.Fetched.Guarded) == f.Fetched.Shown
		})
	base, err := url.Parse(f.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	away = &atomic.Int32{}
	made, err := f.New(channel.Options{Base: f.http.URL, Transport: within{base.Host, away}})
	if err != nil {
		t.Fatal(err)
	}
	fetcher, _ := made.(channel.Fetcher)
	return fetcher, away
}

// within is an HTTP transport that reaches one host only.
type within struct {
	host string
	away *atomic.Int32
}

func (w within) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != w.host {
		w.away.Add(1)
		return nil, errors.New("the network has one host")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// whole fetches and reads a whole file.
func whole(ctx context.Context, a channel.Fetcher, to channel.Destination, file channel.InboundFile) ([]byte, error) {
	c, err := a.Fetch(ctx, to, file)
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // it was only read
	return io.ReadAll(c)
}

func fetchesFiles(t *testing.T, f *fixture) {
	a, away := f.fetches(t)
	c, err := a.Fetch(t.Context(), f.To, f.Fetched.File)
	if err != nil {
		t.Fatal(err)
	}
	if c.Size != int64(len(fileContent())) || c.Type != "text/plain" {
		t.Errorf("%d bytes of %s", c.Size, c.Type)
	}
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, fileContent()) || c.Close() != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// Each fault, at each request of a fetch, must give an error that says whether to retry, and never a part of the file.
	before := f.fake.Requests()
	if _, err := whole(t.Context(), a, f.To, f.Fetched.File); err != nil {
		t.Fatal(err)
	}
	requests := f.fake.Requests() - before
	for _, fault := range chatfake.Faults() {
		for n := range requests {
			if waits(fault) || n == requests-1 && (fault == chatfake.ErrorBody || fault == chatfake.CommitThenMalformed ||
				fault == chatfake.CommitThenLong) {
				continue // hanging requests have a test below; the bodies of the other faults look like a file
			}
			f.fake.Fail(append(make([]chatfake.Fault, n), fault)...)
			got, err := whole(t.Context(), a, f.To, f.Fetched.File)
			if err == nil && bytes.Equal(got, fileContent()) && (fault == chatfake.Drop || fault == chatfake.CommitThenDrop) {
				continue // the transport has retried, which it may
			}
			if err == nil {
				t.Errorf("%s at request %d: %d bytes and no error", fault, n, len(got))
				continue
			}
			e := f.safe(t, err)
			switch {
			case e.Outcome == channel.Ambiguous:
				t.Errorf("%s at request %d: %v, and asking again does no harm", fault, n, e)
			case fault == chatfake.TooMany && (e.Outcome != channel.Limited && e.Outcome != channel.Refused),
				fault == chatfake.CommitThenTruncate && e.Outcome != channel.NotSent,
				fault == chatfake.Redirect && e.Outcome != channel.Refused:
				t.Errorf("%s at request %d: %v", fault, n, e)
			}
		}
	}
	if away.Load() != 0 {
		t.Error("it asks somebody else than its service")
	}
}

func fetchesElsewhere(t *testing.T, f *fixture) {
	a, away := f.fetches(t)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	for _, ref := range []string{
		"", "x", "/etc/passwd", "file:///etc/passwd", other.URL + "/x", "http://169.254.169.254/latest/meta-data", "https://example.com/a",
		"https://files.slack.com@example.com/a", "https://files.slack.com.example.com/a", "https://cdn.discordapp.com:8080/a", "//example.com/a",
		"http://cdn.discordapp.com/a", "https://localhost/a", "https://[::1]/a", "gopher://example.com/a", "https://%zz/",
	} {
		file := f.Fetched.File
		file.Ref = ref
		if got, err := whole(t.Context(), a, f.To, file); err == nil || f.safe(t, err).Outcome != channel.Refused {
			t.Errorf("%q: %d bytes, %v", ref, len(got), err)
		}
	}
	// The service itself redirects to other hosts.
	for _, to := range []string{other.URL + "/x", "http://169.254.169.254/latest/meta-data", "https://example.com/a", "file:///etc/passwd"} {
		f.fake.Put(f.Fetched.Path, chatfake.Reply{Status: http.StatusFound, Header: http.Header{"Location": {to}}}, nil)
		if got, err := whole(t.Context(), a, f.To, f.Fetched.File); err == nil || f.safe(t, err).Outcome != channel.Refused {
			t.Errorf("sent to %q: %d bytes, %v", to, len(got), err)
		}
	}
	f.fake.Put(f.Fetched.Path, chatfake.Reply{Status: http.StatusFound, Header: http.Header{"Location": {f.http.URL + f.Fetched.Path}}}, nil)
	if got, err := whole(t.Context(), a, f.To, f.Fetched.File); err == nil || f.safe(t, err).Outcome != channel.Refused {
		t.Errorf("in circles: %d bytes, %v", len(got), err)
	}
	f.fake.Put(f.Fetched.Path, chatfake.Reply{Status: http.StatusNotFound}, nil)
	if got, err := whole(t.Context(), a, f.To, f.Fetched.File); err == nil || f.safe(t, err).Outcome != channel.Refused {
		t.Errorf("gone: %d bytes, %v", len(got), err)
	}
	if away.Load() != 0 {
		t.Error("it asks somebody else than its service")
	}
}

func fetchHangs(t *testing.T, f *fixture) {
	a, _ := f.fetches(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.fake.Choose(func(*http.Request) chatfake.Fault {
		cancel()
		return chatfake.Hang
	})
	if _, err := whole(ctx, a, f.To, f.Fetched.File); err == nil || f.safe(t, err).Outcome != channel.NotSent {
		t.Errorf("%v", err)
	}
}
