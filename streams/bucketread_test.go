package streams_test

import (
	"fmt"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/streams"
)

// TestAllReadsWhatIsThereAndEnds: All yields each key once with its latest value and no deleted key. It reports values that cannot be
// read, and yields the rest.
func TestAllReadsWhatIsThereAndEnds(t *testing.T) {
	t.Parallel()
	b := natstest.Start(t).Bus
	texts := streams.OpenBucket[string](b, streams.Records)
	for range texts.All(t.Context()) {
		t.Error("an empty bucket has a value")
	}
	for i := range 10 {
		for _, v := range []string{"old", "new"} {
			if _, err := texts.Put(t.Context(), fmt.Sprintf("k%d", i), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := texts.Delete(t.Context(), "k3"); err != nil {
		t.Fatal(err)
	}
	if _, err := streams.OpenBucket[int](b, streams.Records).Put(t.Context(), "odd", 1); err != nil {
		t.Fatal(err)
	}
	got, odd := map[string]string{}, 0
	for p, err := range texts.All(t.Context()) {
		switch {
		case err != nil && p.Key == "odd" && p.Revision > 0:
			odd++
		case err != nil || p.Deleted:
			t.Errorf("%+v, %v", p, err)
		default:
			got[p.Key] += p.Value
		}
	}
	if len(got) != 9 || got["k0"] != "new" || got["k9"] != "new" || got["k3"] != "" || odd != 1 {
		t.Errorf("%v, and %d that cannot be read", got, odd)
	}
	for range texts.All(t.Context()) {
		break // and it may be left
	}
}
