package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

func TestAProviderThatIsShortOfRoomIsAskedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var asked atomic.Int32
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if asked.Add(1) < 4 {
				return providers.Result{}, schemas.OpErrorf(schemas.Exhausted, "run", "no room")
			}
			return hello(ctx, cmd)
		}}
		w.employ(p)
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.want(c, schemas.StatusCompleted)
		w.once(c)
	})
}

func TestAProviderThatStaysAwayFailsTheCall(t *testing.T) {
	for name, err := range map[string]error{
		"exhausted":   schemas.OpErrorf(schemas.Exhausted, "run", "no room"),
		"unsupported": schemas.OpErrorf(schemas.Unsupported, "run", "not here"),
		"unknown":     errors.New("secret path"),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.employ(&fake{run: func(context.Context, providers.Command) (providers.Result, error) { return providers.Result{}, err }})
				c := w.publish(w.call("call_1", schemas.ToolBash))
				r := w.want(c, schemas.StatusFailed)
				if r.Error == nil || r.Error.Code != schemas.CodeOf(err) || strings.Contains(r.Text, "secret") {
					t.Errorf("result %+v", r)
				}
				w.once(c)
			})
		})
	}
}

// A service that says when it wants to be asked again is asked then and not before; where that is too late the call fails at once.
func TestAServiceIsAskedAgainWhenItWantsTo(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		asked int32
		want  schemas.Status
	}{
		"in time":  {20 * time.Second, 2, schemas.StatusCompleted},
		"too late": {10 * time.Minute, 1, schemas.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var asked atomic.Int32
				p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
					if asked.Add(1) == 1 {
						limited := &schemas.Error{Code: schemas.Exhausted, Message: "too many requests", RetryAfter: c.after}
						return providers.Result{}, fmt.Errorf("create: %w", schemas.Wrap(schemas.Exhausted, "run", "no room", limited))
					}
					return hello(ctx, cmd)
				}}
				w.employ(p)
				call := w.publish(w.call("call_1", schemas.ToolBash))
				w.want(call, c.want)
				w.once(call)
				if asked.Load() != c.asked {
					t.Errorf("asked %d times, want %d", asked.Load(), c.asked)
				}
			})
		})
	}
}

// keeping is a provider that keeps boxes and loses one.
type keeping struct {
	fake

	reserved atomic.Int32
}

func (k *keeping) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	return schemas.Ref{ID: key, Epoch: fmt.Sprint(k.reserved.Add(1))}, nil
}

func (k *keeping) Release(context.Context, schemas.Ref) error { return nil }

func TestALostBoxIsReservedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.specs.persistent = true
		k := &keeping{}
		k.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.Sandbox.Epoch != "2" {
				return providers.Result{}, schemas.OpErrorf(schemas.NotFound, "run", "the box is gone")
			}
			return hello(ctx, cmd)
		}
		w.employ(k)
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.want(c, schemas.StatusCompleted)
		if k.reserved.Load() != 2 || k.runs[1].Sandbox.ID != "acct_1.sb_1.ws_1" {
			t.Errorf("reserved %d times, ran in %+v", k.reserved.Load(), k.runs[1].Sandbox)
		}
	})
}
