package streams_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestOldCallsThatCannotBeRead: a call whose input cannot be read is reported by its summary. A message that is not a call is reported
// until it is dead-lettered.
//
//guarantee:one-result-for-every-accepted-call
func TestOldCallsThatCannotBeRead(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		good, large, bad := callOf("good"), callOf("large"), callOf("bad")
		large.Input = []byte(`{"command":"` + strings.Repeat("x", 3<<20) + `"}`)
		bad.Tool = "nonsense"
		for _, c := range []schemas.Call{bad, good, large} {
			testwait.OK(t, streams.Calls.Publish(t.Context(), b, c))
		}
		testwait.Must(b.SpoilPayload(t.Context(), "payloads_2d"))(t)
		between := func() (ids []schemas.CallID, unread []uint64) {
			for p, err := range b.Calls().Between(t.Context(), "local", 1, 1<<62) {
				testwait.OK(t, err)
				if p.Unread {
					unread = append(unread, p.Seq)
				} else {
					ids = append(ids, p.Call.ID)
				}
			}
			return ids, unread
		}
		ids, unread := between()
		if !slices.Equal(ids, []schemas.CallID{"good", "large"}) || !slices.Equal(unread, []uint64{1}) {
			t.Errorf("read %v, not read %v; want good and large, and that the first cannot be read", ids, unread)
		}
		letter := schemas.DeadLetter{ID: "CALLS.1", Stream: "CALLS", Account: account, Time: time.Now(), Reason: "no call"}
		testwait.OK(t, streams.Dead.Publish(t.Context(), b, letter))
		if ids, unread = between(); len(ids) != 2 || len(unread) != 0 {
			t.Errorf("with a dead letter: read %v, not read %v", ids, unread)
		}
	})
}
