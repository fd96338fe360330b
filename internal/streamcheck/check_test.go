package streamcheck_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/internal/streamcheck"
)

// events returns n events of a conversation. Their sequences are three apart, as if the log had other conversations too.
func events(conv string, n int) []streamcheck.Seen {
	all := make([]streamcheck.Seen, n)
	prev := "-1"
	for i := range all {
		cursor := fmt.Sprintf("e_%020d", 3*i+1)
		all[i] = streamcheck.Seen{Conversation: conv, Cursor: cursor, Prev: prev, Digest: fmt.Sprint(conv, i)}
		prev = cursor
	}
	return all
}

func TestEveryPlantedFaultIsFound(t *testing.T) {
	t.Parallel()
	type fault = streamcheck.Fault
	log := events("c", 5)
	at := func(kind streamcheck.Kind, n, place int) fault { return fault{kind, "c", log[n].Cursor, place} }
	without := func(n int) []streamcheck.Seen { return slices.Delete(slices.Clone(log), n, n+1) }
	unnamed := func(all []streamcheck.Seen) []streamcheck.Seen {
		all = slices.Clone(all)
		for i := range all {
			all[i].Prev = ""
		}
		return all
	}
	changed := slices.Clone(log)
	changed[2].Digest = "other"
	foreign := streamcheck.Seen{Conversation: "c", Cursor: "e_00000000000000000002", Digest: "x"}
	for name, tt := range map[string]struct {
		saw   []streamcheck.Seen
		after string
		want  []fault
	}{
		"all of it":                {log, "-1", nil},
		"the rest of it":           {log[2:], log[1].Cursor, nil},
		"one lost":                 {without(2), "-1", []fault{at(streamcheck.Missing, 2, 2), at(streamcheck.Unproven, 3, 2)}},
		"one lost and nobody said": {unnamed(without(2)), "-1", []fault{at(streamcheck.Missing, 2, 2)}},
		"the first lost":           {unnamed(log[1:]), "-1", []fault{at(streamcheck.Missing, 0, 0)}},
		"the last lost":            {log[:4], "-1", []fault{at(streamcheck.Missing, 4, 4)}},
		"nothing seen":             {nil, log[2].Cursor, []fault{at(streamcheck.Missing, 3, 0), at(streamcheck.Missing, 4, 0)}},
		"one twice":                {unnamed(slices.Insert(slices.Clone(log), 3, log[2])), "-1", []fault{at(streamcheck.Repeated, 2, 3)}},
		"two exchanged": {unnamed([]streamcheck.Seen{log[0], log[2], log[1], log[3], log[4]}), "-1",
			[]fault{at(streamcheck.Order, 1, 2)}},
		"one from before the cursor": {unnamed(log[1:]), log[1].Cursor, []fault{at(streamcheck.Order, 1, 0)}},
		"other bytes":                {changed, "-1", []fault{at(streamcheck.Changed, 2, 2)}},
		"one that is nowhere": {
			unnamed(slices.Insert(slices.Clone(log), 1, foreign)), "-1",
			[]fault{{streamcheck.Foreign, "c", foreign.Cursor, 1}},
		},
		"somebody else's": {
			append(slices.Clone(log), events("d", 1)...), "-1",
			[]fault{{streamcheck.Foreign, "d", events("d", 1)[0].Cursor, 5}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := streamcheck.NewLog(slices.Concat(log, events("d", 3)))
			got := l.Check(tt.saw, map[string]string{"c": tt.after})
			if !reflect.DeepEqual(got, tt.want) && len(got)+len(tt.want) > 0 {
				t.Errorf("found %v, want %v", got, tt.want)
			}
		})
	}
}

func TestConversationsAreJudgedEachForItself(t *testing.T) {
	t.Parallel()
	c, d := events("c", 3), events("d", 3)
	l := streamcheck.NewLog(slices.Concat(c, d))
	mixed := []streamcheck.Seen{d[0], c[0], c[1], d[1], d[2], c[2]}
	after := map[string]string{"c": "-1", "d": ""}
	if got := l.Check(mixed, after); len(got) > 0 {
		t.Errorf("found %v", got)
	}
	if got := l.Check(mixed[:4], after); len(got) != 2 || got[0].Conversation != "c" || got[1].Conversation != "d" {
		t.Errorf("found %v, want the last of each", got)
	}
	if got := l.Check(nil, map[string]string{"nobody": "-1"}); len(got) > 0 {
		t.Errorf("found %v in a conversation without events", got)
	}
}

// For random transcripts: a right one has no faults, and one with a lost, repeated, changed or moved event has at least one.
func TestNoChangeIsOverlooked(t *testing.T) {
	t.Parallel()
	proptest.Check(t, func(t *rapid.T) {
		all := events("c", rapid.IntRange(1, 30).Draw(t, "events"))
		l := streamcheck.NewLog(all)
		first := rapid.IntRange(0, len(all)-1).Draw(t, "first")
		after := "-1"
		if first > 0 {
			after = all[first-1].Cursor
		}
		saw := slices.Clone(all[first:])
		if got := l.Check(saw, map[string]string{"c": after}); len(got) > 0 {
			t.Fatalf("a whole transcript is accused of %v", got)
		}
		n := rapid.IntRange(0, len(saw)-1).Draw(t, "n")
		switch rapid.IntRange(0, 3).Draw(t, "change") {
		case 0:
			saw = slices.Delete(saw, n, n+1)
		case 1:
			saw = slices.Insert(saw, n, saw[rapid.IntRange(0, len(saw)-1).Draw(t, "copy")])
		case 2:
			saw[n].Digest += "x"
		case 3:
			other := rapid.IntRange(0, len(saw)-1).Draw(t, "other")
			if saw[n], saw[other] = saw[other], saw[n]; n == other {
				return
			}
		}
		if got := l.Check(saw, map[string]string{"c": after}); len(got) == 0 {
			t.Fatalf("nothing is found in %v", saw)
		}
	})
}

func TestTranscriptsAreRead(t *testing.T) {
	t.Parallel()
	got, err := streamcheck.Read(strings.NewReader(`{"conv":"c","cursor":"e_1","prev":"-1","digest":"x"}

{"conv":"c","cursor":"e_2","event":{"b":"<\u00e9>","a":1.0}}
`))
	if err != nil {
		t.Fatal(err)
	}
	same, err := streamcheck.Content([]byte("{\"a\":1.0,\n \"b\":\"\\u003cé>\"}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []streamcheck.Seen{{Conversation: "c", Cursor: "e_1", Prev: "-1", Digest: "x"}, {Conversation: "c", Cursor: "e_2", Digest: same}}
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if other, err := streamcheck.Content([]byte(`{"a":2,"b":"<é>"}`)); err != nil || other == same {
		t.Errorf("another event has the same digest, or %v", err)
	}
	if _, err := streamcheck.Read(strings.NewReader("{}\nno\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v, want the line at fault", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"conv":"c","cursor":"e_1","event":{"a":[1,2]}}`))
	f.Add([]byte("{}\n\n{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := streamcheck.Read(strings.NewReader(string(b)))
		if err != nil {
			return
		}
		_ = streamcheck.NewLog(all).Check(all, map[string]string{"c": "-1", "": ""})
	})
}
