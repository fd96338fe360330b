package records

import "testing"

// FuzzNATSPassword: what is taken apart is put together again, to the letter.
func FuzzNATSPassword(f *testing.F) {
	for _, s := range []string{"", "sjn_", "sjn_..", "sjn_zz.key_a.AAAA", "sjn_0zz.key_a.AAAA", "sjn_zzzzzzzzzzzzz.key_a.",
		"sjn_-1.key_a.AAAA", "sk_x", "sjn_1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, ok := parseNATS(s); ok && p.String() != s {
			t.Errorf("%q became %q", s, p)
		}
	})
}
