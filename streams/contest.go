package streams

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/acks"
	"github.com/sandjet/sandjet/streams/natserr"
)

// Contest paces a loop that reads a value, changes it and writes it by compare-and-set. Its zero value is ready for one loop.
type Contest struct {
	begun time.Time
	lost  int
}

// Again is called after a write failed with the code conflict. It returns nil when the loop should read and try again: at once after the
// first conflict, later after a pause. It returns unavailable when the loop has lost for so long that its caller should try later, and the
// error of ctx when ctx has ended.
func (c *Contest) Again(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return natserr.Coded("change a record", err)
	}
	c.lost++
	if c.lost == 1 {
		c.begun = time.Now()
		return nil
	}
	pause := acks.ContestPause(c.lost - 1)
	if time.Since(c.begun)+pause >= requestWithin {
		return schemas.OpErrorf(schemas.Unavailable, "change a record", "other processes changed it at the same time: try again")
	}
	if !wait.Sleep(ctx, pause) {
		return natserr.Coded("change a record", ctx.Err())
	}
	return nil
}
