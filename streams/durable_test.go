package streams_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func TestADurableStreamIsWrittenOnConditions(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, d := t.Context(), streams.OpenDurable(b)
		add := func(id, writer string, after uint64, data string) (uint64, error) {
			return d.Append(ctx, account, id, writer, after, []byte(`{"n":"`+data+`"}`), []byte(data))
		}
		first := testwait.Must(add("s", "", 0, "a"))(t)
		second := testwait.Must(add("s", "w1", first, "b"))(t)
		third := testwait.Must(add("s", "w2", second, "c"))(t)
		testwait.Must(add("other", "w1", 0, "x"))(t)
		for name, after := range map[string]uint64{"nothing": 0, "an older message": second, "a message to come": third + 9} {
			if _, err := add("s", "w1", after, "no"); !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("append behind %s: %v; want a conflict", name, err)
			}
		}
		for writer, want := range map[string]string{"": "c", "w1": "b", "w2": "c"} {
			got := testwait.Must(d.Last(ctx, account, "s", writer))(t)
			if string(got.Data) != want || string(got.State) != `{"n":"`+want+`"}` || got.Seq == 0 || got.Stored.IsZero() {
				t.Errorf("the last of writer %q: %+v", writer, got)
			}
		}
		if _, err := d.Last(ctx, account, "s", "w3"); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("the last of a writer that is not there: %v", err)
		}
		page, more, err := d.Page(ctx, account, "s", first)
		if err != nil || more || len(page) != 2 || string(page[0].Data) != "b" || page[1].Seq != third {
			t.Errorf("page: %+v, %t, %v", page, more, err)
		}
		testwait.OK(t, d.Drop(ctx, account, "s"))
		if _, err := add("s", "", third, "no"); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("append to a dropped stream: %v; want a conflict", err)
		}
		names := testwait.Must(d.Names(ctx))(t)
		if len(names) != 1 || !names[streams.DurableName{Account: account, ID: "other"}] {
			t.Errorf("names: %v", names)
		}
		for _, bad := range []string{"", "a.b", "*", ">", "a b"} {
			if _, err := add(bad, "", 0, "no"); !errors.Is(err, schemas.ErrInvalid) {
				t.Errorf("append to %q: %v", bad, err)
			}
		}
	})
}

func TestALargeMessageOfADurableStreamIsReadBack(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, d := t.Context(), streams.OpenDurable(b)
		data, state := bytes.Repeat([]byte{0, 0xff, '\r', '\n'}, d.MaxData()/4), []byte(strings.Repeat("s", 2000))
		seq := testwait.Must(d.Append(ctx, account, "s", "w", 0, state, data))(t)
		got := testwait.Must(d.Last(ctx, account, "s", ""))(t)
		if got.Seq != seq || !bytes.Equal(got.Data, data) || !bytes.Equal(got.State, state) {
			t.Errorf("read back: sequence %d, %d bytes, state of %d", got.Seq, len(got.Data), len(got.State))
		}
	})
}
