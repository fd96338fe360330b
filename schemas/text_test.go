package schemas

import "testing"

func TestWholeText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "a": 1, "aä": 3, "a\xc3": 1, "a\xe2\x82": 1, "a€": 4, "\xf0\x9f\x98": 0, "😀": 4,
		"a\xff": 2, "a\x80\x80\x80\x80": 5, "\xe2\x82": 0,
	} {
		if got := WholeText([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
