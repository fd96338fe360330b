package streams_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams"
)

// TestAListOfLargeRecordsIsShort: what is listed comes to 4 MiB at most, and says that there is more. A list of few is whole.
func TestAListOfLargeRecordsIsShort(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const records, size, limit = 20, 300 << 10, 500
		k := streams.OpenBucket[string](b, streams.Records)
		for n := range records {
			testwait.Must(k.Create(t.Context(), fmt.Sprintf("large.%03d", n), strings.Repeat("x", size), 0))(t)
			testwait.Must(k.Create(t.Context(), fmt.Sprintf("small.%03d", n), "x", 0))(t)
		}
		all := func(string) bool { return true }
		list, more, err := streams.Newest(t.Context(), k, account, "large.*", all, limit)
		testwait.OK(t, err)
		if want := (4 << 20) / (size + 2); len(list) != want || !more {
			t.Errorf("%d of %d records of %d bytes are listed, more: %t; want %d", len(list), records, size, more, want)
		}
		list, more, err = streams.Newest(t.Context(), k, account, "small.*", all, limit)
		testwait.OK(t, err)
		if len(list) != records || more {
			t.Errorf("%d of %d small records are listed, more: %t", len(list), records, more)
		}
	})
}
