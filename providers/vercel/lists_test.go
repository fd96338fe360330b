package vercel_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
)

// TestListsEnd: a list without an end is an error, and not a part of it.
//
//guarantee:bounds
func TestListsEnd(t *testing.T) {
	t.Parallel()
	cloudtest.ListsEnd(t, func(w http.ResponseWriter, n int64) {
		_, _ = fmt.Fprintf(w, `{"sandboxes":[{"name":"i%d"}],"pagination":{"next":"%d"}}`, n, n)
	}, func(url string) providers.Lister { return on(t, url, nil) })
}
