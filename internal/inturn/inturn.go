// Package inturn orders what is due of many owners, so that an owner with much of it holds up each other by one at a time.
package inturn

import (
	"cmp"
	"slices"
)

// Order puts what is due in the order in which it is handled: the first of each owner, then the second of each, and so on. However many
// are due of one owner, another's comes behind one of each. First orders those of one owner. It sorts due in place and returns it.
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
