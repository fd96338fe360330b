package cloud

import (
	"context"
	"errors"
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

// The marks of a sandbox. The first one that is put on it stays.
const (
	MarkChosen = "chosen" // it is the sandbox of its key
	MarkLost   = "lost"   // another one is, or will be: it may be killed
)

// MarkScript is a script of sh that puts the mark $1 on the sandbox that it runs in where it has none, and prints the mark that it has.
// Making a link is one step, of which the first succeeds. Who takes the mark off chooses the same sandbox again.
const MarkScript = `ln -s "$1" /tmp/.chosen-by-sandjet 2>/dev/null; readlink /tmp/.chosen-by-sandjet`

// ErrGone is what a [Marker] says of a sandbox that is not there any more.
var ErrGone = errors.New("the sandbox is gone")

// Marker puts a mark on a sandbox where it has none, and returns the mark that it has. That is one step for all who do it.
type Marker func(ctx context.Context, id, mark string) (string, error)

// Elect chooses one of some sandboxes that were made for one key, in the order of the list; empty: none can be. The others that are there
// are lost, and returned.
//
// Services without unique names cannot say which sandbox was first: times of creation are taken before lists show a sandbox, may be equal,
// and come in another order than the lists grow. So a sandbox is chosen by a mark in itself, and only after each other one that the list
// shows is marked as lost. Of two that were chosen each was missing from the list that chose the other. That cannot be where a list that
// shows a sandbox shows also those which lists could show before it, and who has made one waits until lists show it. Where a service breaks
// that, two may be chosen: all who look from then on take the first of the list, and the other is left to the sweep.
//
// A worker that dies on the way leaves marks with which others continue. Errors are the marker's, except that of [ErrGone], or conflict: a
// sandbox says no mark, as when it is just ending. Look again.
func Elect(ctx context.Context, ids []string, mark Marker) (chosen string, lost []string, err error) {
	for i, id := range slices.Backward(ids) {
		want := MarkLost
		if i == 0 && chosen == "" {
			want = MarkChosen
		}
		switch has, err := mark(ctx, id, want); {
		case errors.Is(err, ErrGone):
		case err != nil:
			return "", nil, err
		case has == MarkChosen:
			chosen = id
		case has == MarkLost:
			lost = append(lost, id)
		default:
			return "", nil, schemas.OpErrorf(schemas.Conflict, "reserve",
				"the sandbox does not say which mark it has: %q", schemas.Quotable(has))
		}
	}
	return chosen, lost, nil
}
