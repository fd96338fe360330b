package streams

import (
	"context"
	"testing"
)

// TestWhatBeginsAtTheFirstValueIsAskedEachTime: the stream may be another one until the watch has begun, so a mirror must count from
// there what it has not seen. A revision that was read up to is asked for once.
func TestWhatBeginsAtTheFirstValueIsAskedEachTime(t *testing.T) {
	t.Parallel()
	asked := 0
	f := following[int]{bucket: &Bucket[int]{}, begin: func() (uint64, error) { asked++; return 0, nil }}
	for range 3 { // nothing was begun with it
		if after, err := f.from(context.Background()); after != 0 || err != nil {
			t.Errorf("%d, %v", after, err)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
}
