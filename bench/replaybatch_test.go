package bench

import (
	"bytes"
	"compress/flate"
	"fmt"
	"strings"
	"testing"
)

// TestAFollowerChecksEveryEventOfABatch: holes and repeats are counted within a batch too, even where the text of an event looks like the
// beginning of another.
func TestAFollowerChecksEveryEventOfABatch(t *testing.T) {
	t.Parallel()
	event := func(cur, prev string) string {
		return fmt.Sprintf(`{"op":"ev","conv":"c","cur":"%s","prev":"%s","data":{"text":"],{\"op\":\"ev\",\"conv\":\"c\",\"cur\":\"x"}}`,
			cur, prev)
	}
	for name, tc := range map[string]struct {
		events       []string
		seen, faults int
		last         string
	}{
		"in order": {[]string{event("e_1", "-1"), event("e_2", "e_1"), event("e_3", "e_2")}, 3, 0, "e_3"},
		"a hole":   {[]string{event("e_1", "-1"), event("e_3", "e_2")}, 2, 1, "e_3"},
		"a repeat": {[]string{event("e_1", "-1"), event("e_2", "e_1"), event("e_2", "e_1")}, 3, 1, "e_2"},
	} {
		f := &follower{lead: []byte(`{"op":"ev","conv":"c","cur":"`), last: []byte(startCursor), inflate: flate.NewReader(strings.NewReader(""))}
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(w, `{"op":"batch","conv":"c","frames":[%s]}`, strings.Join(tc.events, ",")) // into memory
		_ = w.Flush()                                                                                  // as above
		text, err := f.unpack(bytes.TrimSuffix(b.Bytes(), []byte(deflateTail[:4])))
		if err == nil {
			err = f.take(text)
		}
		if err != nil || f.events != tc.seen || f.faults != tc.faults || string(f.last) != tc.last {
			t.Errorf("%s: %d events, %d faults, the last %s, %v; want %+v", name, f.events, f.faults, f.last, err, tc)
		}
	}
}
