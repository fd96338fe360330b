package sometimes

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnceForEachKeyAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := Keyed{Every: time.Minute}
		for _, step := range []struct {
			key  string
			due  bool
			then time.Duration
		}{
			{"a", true, 0}, {"a", false, 0}, {"b", true, 59 * time.Second}, {"a", false, time.Second},
			{"a", true, 0}, {"b", true, 0}, {"b", false, 0},
		} {
			if due := k.Due(step.key); due != step.due {
				t.Errorf("%s at %s: due %t", step.key, time.Now(), due)
			}
			time.Sleep(step.then)
		}
	})
}

func TestKeysHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := Keyed{Every: time.Minute}
		due := 0
		for i := range 2 * mostKeys {
			if k.Due(fmt.Sprint(i)) {
				due++
			}
		}
		if due != mostKeys || len(k.last) != mostKeys {
			t.Errorf("%d due, %d remembered", due, len(k.last))
		}
		time.Sleep(time.Minute)
		if !k.Due("another") || len(k.last) != 1 {
			t.Errorf("%d remembered after a minute", len(k.last))
		}
	})
}

//guarantee:bounds
func TestWhatIsLeftOutIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Counted
		for _, step := range []struct {
			key     string
			due     bool
			leftOut int
			then    time.Duration
		}{
			{"a", true, 0, 0}, {"a", false, 0, 0}, {"b", true, 0, 59 * time.Second}, {"a", false, 0, time.Second},
			{"a", true, 2, 0}, {"b", true, 0, 0}, {"a", false, 0, time.Minute}, {"a", true, 1, 0},
		} {
			if leftOut, due := k.Due(step.key); due != step.due || leftOut != step.leftOut {
				t.Errorf("%s at %s: due %t with %d left out", step.key, time.Now(), due, leftOut)
			}
			time.Sleep(step.then)
		}
		k.last = nil
		due := 0
		for i := range 3 * mostKeys {
			if _, ok := k.Due(fmt.Sprint(i)); ok {
				due++
			}
		}
		if due != mostKeys+1 || len(k.last) != mostKeys+1 {
			t.Errorf("%d due, %d remembered", due, len(k.last))
		}
		time.Sleep(time.Minute)
		if _, due := k.Due("another"); !due || len(k.last) != 1 {
			t.Errorf("%d remembered after a minute", len(k.last))
		}
	})
}
