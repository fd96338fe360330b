package cloud_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// TestItems: an array is read item by item. After a response that broke off it is read again from its beginning; anything but an array is
// an error.
func TestItems(t *testing.T) {
	t.Parallel()
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `[{"n":1},{"n":2},`)
	}
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	table := cloud.Retry{Route: "*", On: []int{503}, Lost: true, Tries: 2}
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		want    []int
		fails   bool
		asked   int32
	}{
		"nothing":                 {[]http.HandlerFunc{says(`[]`)}, nil, false, 1},
		"two":                     {[]http.HandlerFunc{says(` [{"n":1}, {"n":2} ] `)}, []int{1, 2}, false, 1},
		"half, and then all":      {[]http.HandlerFunc{half, says(`[{"n":1},{"n":2},{"n":3}]`)}, []int{1, 2, 3}, false, 2},
		"busy, and then all":      {[]http.HandlerFunc{status(503, ""), says(`[{"n":1}]`)}, []int{1}, false, 2},
		"half of it again":        {[]http.HandlerFunc{half}, nil, true, 2},
		"no array":                {[]http.HandlerFunc{says(`{"n":1}`)}, nil, true, 2},
		"an item of another kind": {[]http.HandlerFunc{says(`[{"n":1},"x"]`)}, nil, true, 2},
		"no end of the array":     {[]http.HandlerFunc{says(`[{"n":1}`)}, nil, true, 2},
		"refused":                 {[]http.HandlerFunc{status(401, "")}, nil, true, 1},
	} {
		var n atomic.Int32
		client := service(t, answers(&n, c.answers...), table)
		var got []int
		_, err := client.Do(t.Context(), cloud.Call{Method: "GET", Path: "/x", Stream: cloud.Items(
			func() { got = nil }, func(m message) { got = append(got, m.N) })})
		if (err != nil) != c.fails || !c.fails && !slices.Equal(got, c.want) || n.Load() != c.asked {
			t.Errorf("%s: %v, %v, asked %d times", name, got, err, n.Load())
		}
	}
}

// TestListsAreBounded: a list without end is an error, and is not requested again.
//
//guarantee:bounds
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	spaces := strings.Repeat(" ", 1<<20)
	client := service(t, answers(&n, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, `[{"n":1},`)
		for err == nil && r.Context().Err() == nil {
			_, err = io.WriteString(w, spaces)
		}
	}), cloud.Retry{Route: "*", On: []int{503}, Lost: true})
	_, err := client.Do(t.Context(), cloud.Call{Method: "GET", Path: "/x", Stream: cloud.Items(func() {}, func(message) {})})
	if cloud.KindOf(err) != cloud.KindTooLong || n.Load() != 1 {
		t.Errorf("%v, asked %d times", err, n.Load())
	}
	if got := cloud.Explain("list", "Acme", err); schemas.CodeOf(got) != schemas.Unavailable || !strings.Contains(got.Error(), "64 MiB") {
		t.Errorf("%v", got)
	}

	pages := cloud.Pages{Route: "GET /x"}
	for page := range cloud.MaxListPages {
		if err := pages.Read(1); err != nil {
			t.Fatalf("page %d: %v", page, err)
		}
	}
	if err := pages.Read(1); cloud.KindOf(err) != cloud.KindTooLong {
		t.Errorf("one page more: %v", err)
	}
	large := cloud.Pages{}
	if err := large.Read(cloud.MaxList); err != nil {
		t.Error(err)
	}
	if err := large.Read(1); cloud.KindOf(err) != cloud.KindTooLong {
		t.Errorf("one byte more: %v", err)
	}
}
