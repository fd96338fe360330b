package streams

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// deploymentKey is in the bucket [Boxes], because persistent instances are what carries the id.
const deploymentKey = "deployment"

// deploymentKept is longer than any log.
const deploymentKept = 100 * 365 * 24 * time.Hour

// deploymentRow is the value.
type deploymentRow struct {
	ID string `json:"id"`
}

// Deployment returns the id of the log and of everything that works on it, which it creates if there is none. What is created outside of
// the log, such as containers, carries it to be distinguished from that of other deployments. It has letters, digits and an underscore, at
// most 40. It is part of the log's data, so a copy of the log has it too. It asks the log each time.
func Deployment(ctx context.Context, b *Bus) (string, error) {
	rows := OpenBucket[deploymentRow](b, Boxes)
	p, err := rows.Get(ctx, deploymentKey)
	if errors.Is(err, schemas.ErrNotFound) {
		_, err = rows.Create(ctx, deploymentKey, deploymentRow{schemas.NewID("dep_")}, deploymentKept)
		if err == nil || errors.Is(err, schemas.ErrConflict) { // or another process was first
			p, err = rows.Get(ctx, deploymentKey)
		}
	}
	if err == nil && p.Value.ID == "" {
		err = schemas.OpErrorf(schemas.Internal, "look up the deployment", "the log does not say which it is")
	}
	return p.Value.ID, err
}
