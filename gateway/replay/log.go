package replay

import (
	"context"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/outputs"
)

// Log is the part of the log that a [Hub] reads. [BusLog] implements it; tests use fakes.
type Log interface {
	// Run delivers live events to the followers until ctx ends, then returns nil. It calls lost, which must not block, whenever live events of
	// any conversation may have been lost.
	Run(ctx context.Context, lost func()) error
	// Follow calls received, which must not block, for each event that is stored after Follow has returned.
	Follow(ctx context.Context, a schemas.AccountID, c schemas.ConversationID, received func(streams.LiveEvent)) (stop func(), err error)
	// Last returns the cursor of the last event; its sequence is 0 if there is none.
	Last(ctx context.Context, a schemas.AccountID, c schemas.ConversationID) (schemas.Cursor, error)
	// Read returns a page of the events from a sequence on.
	Read(ctx context.Context, a schemas.AccountID, c schemas.ConversationID, from uint64) (streams.EventPage, error)
	// Locate finds the position after a cursor.
	Locate(ctx context.Context, a schemas.AccountID, c schemas.ConversationID, after schemas.Cursor) (streams.Place, error)
	// Snapshots returns for each piece what its call had printed before it.
	Snapshots(ctx context.Context, a schemas.AccountID, c schemas.ConversationID, of []outputs.PlacedPiece) ([]outputs.Snapshot, error)
	// Shard returns the shard of a conversation, State the state of a shard.
	Shard(c schemas.ConversationID) int
	State(ctx context.Context, shard int) (streams.ShardState, error)
}

// BusLog implements [Log] with a Bus. Make it with [NewBusLog].
type BusLog struct {
	bus  *streams.Bus
	tail *streams.Tail
	lost func() // set by Run
}

// NewBusLog returns the [Log] of a Bus.
func NewBusLog(b *streams.Bus) *BusLog {
	l := &BusLog{bus: b}
	l.tail = streams.NewTail(b, func() { l.lost() })
	return l
}

// Run implements [Log].
func (l *BusLog) Run(ctx context.Context, lost func()) error {
	l.lost = lost
	return l.tail.Run(ctx)
}

// Follow implements [Log].
func (l *BusLog) Follow(
	ctx context.Context, a schemas.AccountID, c schemas.ConversationID, received func(streams.LiveEvent),
) (stop func(), err error) {
	return l.tail.Follow(ctx, a, c, received)
}

// Last implements [Log].
func (l *BusLog) Last(ctx context.Context, a schemas.AccountID, c schemas.ConversationID) (schemas.Cursor, error) {
	return streams.LastEvent(ctx, l.bus, a, c)
}

// Read implements [Log].
func (l *BusLog) Read(ctx context.Context, a schemas.AccountID, c schemas.ConversationID, from uint64) (streams.EventPage, error) {
	return streams.ReadEvents(ctx, l.bus, a, c, from, 0)
}

// Locate implements [Log].
func (l *BusLog) Locate(
	ctx context.Context, a schemas.AccountID, c schemas.ConversationID, after schemas.Cursor,
) (streams.Place, error) {
	return streams.Locate(ctx, l.bus, a, c, after)
}

// Snapshots implements [Log].
func (l *BusLog) Snapshots(
	ctx context.Context, a schemas.AccountID, c schemas.ConversationID, of []outputs.PlacedPiece,
) ([]outputs.Snapshot, error) {
	return l.bus.States().Snapshots(ctx, a, c, of)
}

// Shard implements [Log].
func (l *BusLog) Shard(c schemas.ConversationID) int { return l.bus.ShardOf(c) }

// State implements [Log].
func (l *BusLog) State(ctx context.Context, shard int) (streams.ShardState, error) {
	return streams.ReadShard(ctx, l.bus, shard)
}
