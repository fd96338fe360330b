package maintenance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/schemas"
)

const testAccount schemas.AccountID = "acct_1"

func member(id string, size int) schemas.Job {
	return schemas.Job{ID: schemas.JobID("job_" + id), Account: testAccount, Conversation: "c_1", Turn: "turn_1",
		Group: &schemas.GroupRef{ID: "g", Size: size}}
}

func TestJoinGroup(t *testing.T) {
	t.Parallel()
	now := time.Now()
	group := func(size, missing int, done bool, settled ...schemas.JobID) *schemas.Group {
		return &schemas.Group{ID: "g", Account: testAccount, Conversation: "c_1", Size: size, Missing: missing, Done: done, Settled: settled}
	}
	stranger := member("b", 2)
	stranger.Conversation = "c_2"
	for _, c := range []struct {
		name  string
		group *schemas.Group
		job   schemas.Job
		write bool
		step  groupStep
		size  int // members settled after it
	}{
		{"the first makes the group", nil, member("a", 2), true, memberWaits, 1},
		{"the only one ends it", nil, member("a", 1), true, memberEnds, 1},
		{"one of three waits", group(3, 0, false, "job_a"), member("b", 3), true, memberWaits, 2},
		{"the last ends it", group(2, 0, false, "job_a"), member("b", 2), true, memberEnds, 2},
		{"one that comes again waits on", group(2, 0, false, "job_a"), member("a", 2), false, memberWaits, 1},
		{"one that comes again ends it again", group(2, 0, false, "job_a", "job_b"), member("a", 2), false, memberEnds, 2},
		{"one that comes again when all is done", group(2, 0, true, "job_a", "job_b"), member("a", 2), false, memberDone, 2},
		{"one more than the group has", group(2, 0, false, "job_a", "job_b"), member("c", 2), false, memberAlone, 2},
		{"one that comes when all is done", group(2, 0, true, "job_a", "job_b"), member("c", 2), false, memberAlone, 2},
		{"one that is not waited for any more", group(2, 1, false, "job_a"), member("b", 2), false, memberAlone, 1},
		{"one of a group that went on without others", group(3, 1, false, "job_a", "job_b"), member("a", 3), false, memberEnds, 2},
		{"one that has another size", group(2, 0, false, "job_a"), member("b", 3), false, memberAlone, 1},
		{"one of another conversation", group(2, 0, false, "job_a"), stranger, false, memberAlone, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g, write, step := joinGroup(c.group, c.job, now)
			if write != c.write || step != c.step || len(g.Settled) != c.size {
				t.Errorf("write %v, step %s, %d settled; want %v, %s, %d", write, step, len(g.Settled), c.write, c.step, c.size)
			}
			if c.group == nil && (g.Turn != "turn_1" || g.Conversation != "c_1" || g.Size != c.job.Group.Size || !g.Deadline.After(now)) {
				t.Errorf("group %+v", g)
			}
		})
	}
}

// TestEveryMemberIsReportedOnce settles members in any order, also repeatedly, while the group's time may end in between: each result is
// in the group's follow-up or in one of its own, and never in both.
func TestEveryMemberIsReportedOnce(t *testing.T) {
	t.Parallel()
	proptest.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 6).Draw(t, "size")
		come := rapid.IntRange(1, size+2).Draw(t, "come") // fewer or more than the group has
		var record *schemas.Group
		var ended []schemas.JobID // members when the group first ended
		alone := map[schemas.JobID]bool{}
		deliver := func(i int) {
			j := member(fmt.Sprint(i), size)
			g, write, step := joinGroup(record, j, time.Now())
			if write {
				record = &g
			}
			switch step {
			case memberEnds:
				if ended == nil {
					ended = slices.Clone(g.Settled)
				}
				if !slices.Equal(ended, g.Settled) {
					t.Fatalf("made again with %v, first with %v", g.Settled, ended)
				}
				if rapid.Bool().Draw(t, "closed") {
					record.Done = true
				}
			case memberAlone:
				alone[j.ID] = true
			case memberDone, memberWaits:
			}
		}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, come-1), 0, 12).Draw(t, "first") { // with repeats
			deliver(i)
		}
		if record != nil && !sealed(*record) && rapid.Bool().Draw(t, "time is over") {
			record.Missing = record.Size - len(record.Settled)
		}
		for _, i := range rapid.Permutation(slices.Collect(upTo(come))).Draw(t, "then all") {
			deliver(i)
		}
		for i := range come {
			id := member(fmt.Sprint(i), size).ID
			together := slices.Contains(ended, id)
			if waits := !sealed(*record); together == alone[id] && !waits || waits && (together || alone[id]) {
				t.Errorf("%s: in the group's follow-up %v, in one of its own %v; group %+v", id, together, alone[id], *record)
			}
		}
	})
}

func upTo(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}
