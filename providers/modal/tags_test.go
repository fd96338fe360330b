package modal

import (
	"math"
	"testing"
	"time"
)

func TestHints(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float32]time.Duration{
		0: 0, -1: 0, 1.5: 1500 * time.Millisecond, 1e30: 24 * time.Hour, float32(math.Inf(1)): 24 * time.Hour, float32(math.Inf(-1)): 0,
	} {
		if got := hint(seconds); got != want {
			t.Errorf("%v: %s, want %s", seconds, got, want)
		}
	}
	if got := hint(float32(math.NaN())); got != 0 {
		t.Errorf("no number is %s", got)
	}
}

// FuzzTags: a text of any kind comes back as it was, in values that the service takes. Tags of other programs are no reason to stop.
func FuzzTags(f *testing.F) {
	f.Add("key/ä \x00", "Zm9v")
	f.Add("", "!")
	f.Fuzz(func(t *testing.T, text, other string) {
		tags := map[string]string{}
		setText(tags, tagKey, text)
		for name, value := range tags {
			if value == "" || len(value) > longestTag {
				t.Errorf("%s is %q", name, value)
			}
		}
		if got := textOf(tags, tagKey); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
		_ = textOf(map[string]string{tagKey + "-0": other}, tagKey)
		_ = madeAt(map[string]string{tagMade: other})
	})
}
