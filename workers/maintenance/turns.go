package maintenance

import (
	"cmp"
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

// inTurn puts what is due in the order in which it is looked after: the first of each account, then the second of each, and so on.
// However many are due of one account, another's comes behind one of each. First orders those of one account.
func inTurn[T any](due []T, account func(T) schemas.AccountID, first func(a, b T) int) []T {
	slices.SortFunc(due, first)
	type placed struct {
		value T
		place int
	}
	order, seen := make([]placed, len(due)), map[schemas.AccountID]int{}
	for i, v := range due {
		a := account(v)
		order[i] = placed{v, seen[a]}
		seen[a]++
	}
	slices.SortStableFunc(order, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	for i, o := range order {
		due[i] = o.value
	}
	return due
}
