package records

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// remove deletes the record under key; with a revision other than 0 only that revision. A record that cannot be decrypted is removed too.
func (s *cache) remove(ctx context.Context, key string, revision uint64) error {
	kind, a, _, _ := splitKey(key)
	var b boxes
	if kind == kindSandbox || kind == kindWorkspace {
		b = s.boxesOf(ctx, a)
	}
	return s.removeMarked(ctx, key, revision, b.marked(key))
}

// removeMarked is remove with a lifetime of the deletion marker.
func (s *cache) removeMarked(ctx context.Context, key string, revision uint64, marked time.Duration) error {
	var contest streams.Contest
	for {
		p, err := s.bucket.Get(ctx, key)
		if err != nil && p.Revision == 0 {
			return fmt.Errorf("read the record %s: %w", key, err)
		}
		if revision != 0 && p.Revision != revision {
			return stale()
		}
		err = s.bucket.DeleteFor(ctx, key, p.Revision, marked)
		if err == nil {
			// The mark of the deletion has a later revision than what it deletes, and no less than this.
			s.apply(streams.BucketEntry[record]{Key: key, Deleted: true, Revision: p.Revision + 1})
			return nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return fmt.Errorf("delete the record %s: %w", key, err)
		}
		if err := contest.Again(ctx); err != nil {
			return err
		}
	}
}

// boxes are the sandboxes and workspaces of an account with instances of persistent sandboxes.
type boxes struct {
	unknown bool // what has instances could not be read
	of      map[string]bool
}

func (s *cache) boxesOf(ctx context.Context, a schemas.AccountID) boxes {
	keys, err := s.boxes.Keys(ctx, "*."+string(a)+".*.*")
	b := boxes{unknown: err != nil, of: map[string]bool{}}
	for _, key := range keys {
		if part := strings.Split(key, "."); len(part) == 4 { // provider, account, sandbox, workspace
			b.of[part[2]], b.of[part[3]] = true, true
		}
	}
	return b
}

// marked is how long the mark of a record's deletion stays; 0: for ever. A process removes what depended on the record only if the log says
// that the record was deleted: one without a mark may be lost. Records of most kinds have nothing that depends on them. A box may belong to
// a sandbox or workspace for as long as boxes live. Of an account conversations and durable streams are left, and accounts are few: a
// tenant cannot make them as it makes records.
func (b boxes) marked(key string) time.Duration {
	switch kind, _, id, _ := splitKey(key); {
	case kind == kindAccount:
		return 0
	case (kind == kindSandbox || kind == kindWorkspace) && (b.unknown || b.of[id]):
		return streams.BoxesKept
	}
	return streams.MarksKept
}
