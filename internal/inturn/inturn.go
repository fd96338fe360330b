// Package inturn orders due items of many owners fairly: an owner with many delays each of the others by one item at a time.
package inturn

import (
	"cmp"
	"slices"
)

// Order sorts due items in the order in which they are to be handled: the first of each owner, then the second of each, and so on. However
// many items one owner has, another's first item follows after at most one of each. first compares items of one owner. It sorts due in
// place and returns it.
func Order[T any, K comparable](due []T, owner func(T) K, first func(a, b T) int) []T {
	slices.SortFunc(due, first)
	type placed struct {
		value T
		place int
	}
	order, seen := make([]placed, len(due)), map[K]int{}
	for i, v := range due {
		o := owner(v)
		order[i] = placed{v, seen[o]}
		seen[o]++
	}
	slices.SortStableFunc(order, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	for i, o := range order {
		due[i] = o.value
	}
	return due
}
