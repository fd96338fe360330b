//go:build linux

package box

import (
	"slices"
	"testing"
)

func TestDescendantsWhileParentsEnd(t *testing.T) {
	t.Parallel()
	const root, outside = 10, 1
	for name, c := range map[string]struct {
		first, later map[int]int // parents, as asked for the first time and after that
		want         []int
	}{
		"nobody":              {},
		"children and theirs": {first: map[int]int{20: root, 30: 20, 40: 30}, want: []int{20, 30, 40}},
		"others are left out": {first: map[int]int{20: root, 30: outside, 40: 30, outside: 0},
			later: map[int]int{30: outside}, want: []int{20}},
		"an orphan that was adopted":   {first: map[int]int{30: root}, want: []int{30}},
		"a parent ends meanwhile":      {first: map[int]int{30: 20}, later: map[int]int{30: root}, want: []int{30}},
		"two of them end meanwhile":    {first: map[int]int{40: 30}, later: map[int]int{40: root}, want: []int{40}},
		"one in the middle does":       {first: map[int]int{40: 30, 30: 20}, later: map[int]int{30: root}, want: []int{30, 40}},
		"a parent and its child do":    {first: map[int]int{30: 20}},
		"numbers that make a loop":     {first: map[int]int{20: 30, 30: 20}},
		"a stranger's parent does not": {first: map[int]int{30: outside}, later: map[int]int{30: outside}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := map[int]bool{}
			parents := func(pid int) int {
				if !asked[pid] {
					asked[pid] = true
					return c.first[pid]
				}
				return c.later[pid]
			}
			got := descendants([]int{outside, 20, 30, 40}, root, parents)
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("%v descend, want %v", got, c.want)
			}
		})
	}
}
