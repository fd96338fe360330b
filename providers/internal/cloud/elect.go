package cloud

import (
	"context"
	"errors"
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

// The marks of a sandbox. Only the first mark that is set on a sandbox counts.
const (
	MarkChosen = "chosen" // the sandbox of its key
	MarkLost   = "lost"   // another one is or will be chosen: this one may be ended
)

// MarkScript is a script of sh that sets the mark $1 on the sandbox in which it runs, if that has none, and prints the sandbox's mark.
// Creating a symbolic link is atomic, and only the first attempt succeeds.
const MarkScript = `ln -s "$1" /tmp/.chosen-by-sandjet 2>/dev/null; readlink /tmp/.chosen-by-sandjet`

// ErrGone is the error of a [Marker] for a sandbox that no longer exists.
var ErrGone = errors.New("the sandbox is gone")

// Marker sets a mark on a sandbox that has none, and returns the mark that it then has. The operation must be atomic among all processes.
type Marker func(ctx context.Context, id, mark string) (string, error)

// Elect chooses one of several sandboxes that were made for one key, in the order of the list; empty if none can be chosen. It returns the
// other existing ones as lost.
//
// Services without unique names cannot say which sandbox was first: creation times are set before lists show a sandbox, may be equal, and
// may differ from the order in which the lists grow. So Elect chooses a sandbox by a mark stored in it, and only after it has marked every
// other sandbox of the list as lost. If two were chosen, each must have been missing from the list that chose the other. That cannot
// happen if a list that shows a sandbox also shows all those that earlier lists could show, and the maker of a sandbox waits until lists
// show it. If a service breaks this, two may be chosen: from then on all callers take the first of the list, and the sweep removes the
// other.
//
// If a worker dies during Elect, others continue from its marks. Errors are the marker's, except [ErrGone], which is skipped. Code:
// conflict, a sandbox returns no mark, as when it is just ending: list again and retry.
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
