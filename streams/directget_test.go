package streams_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// pageParts is what a server sends of a page with the messages 2, 4, 6 and 8, of which a publisher has set the header of the last itself.
func pageParts() (parts []*nats.Msg) {
	last := 0
	for seq := 2; seq <= 8; seq += 2 {
		m := nats.NewMsg("")
		m.Header = nats.Header{"Nats-Stream": {"GONE"}, "Nats-Subject": {"a"}, "Nats-Sequence": {fmt.Sprint(seq)},
			"Nats-Time-Stamp": {time.Now().Format(time.RFC3339Nano)}, "Nats-Num-Pending": {"0"}, "Nats-Last-Sequence": {fmt.Sprint(last)}}
		last = seq
		parts = append(parts, m)
	}
	parts[3].Header["Nats-Last-Sequence"] = []string{"99", "6"}
	end := nats.NewMsg("")
	end.Header = nats.Header{"Status": {"204"}, "Description": {"EOB"}, "Nats-Num-Pending": {"0"}, "Nats-Last-Sequence": {fmt.Sprint(last)}}
	return append(parts, end)
}

// TestAPageWithAHoleIsNone: a connection between servers that breaks and comes back may lose any part of an answer.
func TestAPageWithAHoleIsNone(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		parts := pageParts()
		lost := -1
		testwait.OK(t, b.Fake("$JS.API.DIRECT.GET.GONE", func() []*nats.Msg {
			if lost < 0 {
				return parts
			}
			return slices.Concat(parts[:lost], parts[lost+1:])
		}))
		if got, more, err := b.Sequences(t.Context(), "GONE"); err != nil || more || !slices.Equal(got, []uint64{2, 4, 6, 8}) {
			t.Fatalf("the whole page: %v, %v, %v", got, more, err)
		}
		for lost = range 4 {
			if got, _, err := b.Sequences(t.Context(), "GONE"); !errors.Is(err, schemas.ErrUnavailable) {
				t.Errorf("without part %d: %v, %v; want unavailable", lost, got, err)
			}
		}
	})
}
