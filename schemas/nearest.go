package schemas

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the known name that a wrong one probably meant: the one with the fewest letters to change, two at most and half of
// the name at most. It is empty where none is near.
func Nearest(name string, known []string) string {
	if near := nearest(name, known, false); len(near) > 0 {
		return near[0]
	}
	return ""
}

// NearestNames returns up to three known names that a wrong one may have meant, the likeliest first: those of Nearest, and those that
// begin with it.
func NearestNames(name string, known []string) []string {
	const most = 3
	near := nearest(name, known, true)
	return near[:min(len(near), most)]
}

func nearest(name string, known []string, beginnings bool) []string {
	const longest = 64 // of a name that is compared letter by letter
	if name == "" || len(name) > longest {
		return nil
	}
	type candidate struct {
		name     string
		distance int
	}
	asked := strings.ToLower(name)
	limit := min(len(asked)/2, 2) + 1
	var near []candidate
	for _, k := range slices.Sorted(slices.Values(known)) {
		plain := strings.ToLower(k)
		d := distance(asked, plain, limit)
		if d < limit || beginnings && strings.HasPrefix(plain, asked) {
			near = append(near, candidate{k, d})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	names := make([]string, len(near))
	for i, c := range near {
		names[i] = c.name
	}
	return slices.Compact(names)
}

// distance is Levenshtein's, in bytes; most or more where it is not less than that.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
