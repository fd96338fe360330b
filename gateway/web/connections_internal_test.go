package web

import "testing"

//guarantee:a-client-that-neither-sends-nor-reads-holds-nothing-for-long
func TestDefaultConnections(t *testing.T) {
	const gib = 1 << 30
	for _, tc := range []struct {
		files  int
		memory int64
		want   int
	}{
		{1024, 16 * gib, 768},
		{65_536, 0, 49_152}, // the memory is unknown
		{65_536, 64 * gib, 49_152},
		{65_536, 3 * gib, 9830},
		{65_536, gib / 2, 1638},
		{1 << 20, 64 * gib, 150_000},
		{1 << 20, 1 << 20, 64},
	} {
		if got := defaultConnections(tc.files, tc.memory); got != tc.want {
			t.Errorf("%d descriptors, %d bytes: %d, want %d", tc.files, tc.memory, got, tc.want)
		}
	}
}
