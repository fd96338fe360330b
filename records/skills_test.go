package records_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestSkillsOfAnAccountAreBounded: one more than an account may have is refused before its bundle is stored and when it is named, what is
// there can still be replaced, removing one makes room, and another account has its own bound.
func TestSkillsOfAnAccountAreBounded(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		s := open(t, b)
		skill := func(a schemas.AccountID, n int, digest string) schemas.Skill {
			return schemas.Skill{Account: a, Digest: strings.Repeat(digest, 64), Size: 1, Files: 1,
				SkillManifest: schemas.SkillManifest{Name: fmt.Sprintf("skill-%03d", n), Description: "one of many"}}
		}
		put := func(k schemas.Skill) error {
			_, _, err := s.Skills.Put(t.Context(), k, false, 0)
			return err
		}
		for n := range schemas.MaxSkills {
			if err := put(skill("acct_1", n, "a")); err != nil {
				t.Fatalf("skill %d: %v", n, err)
			}
		}
		more := skill("acct_1", schemas.MaxSkills, "a")
		if err := s.Skills.Admit(t.Context(), "acct_1", more.SkillManifest, true); schemas.CodeOf(err) != schemas.Exhausted {
			t.Errorf("one more before its bundle: %v", err)
		}
		if err := put(more); schemas.CodeOf(err) != schemas.Exhausted || !strings.Contains(err.Error(), "200 skills") {
			t.Errorf("one more: %v", err)
		}
		if err := put(skill("acct_1", 7, "b")); err != nil {
			t.Errorf("one that is there: %v", err)
		}
		if err := put(skill("acct_2", 0, "a")); err != nil {
			t.Errorf("one of another account: %v", err)
		}
		if err := s.Skills.Remove(t.Context(), "acct_1", "skill-003", 0); err != nil {
			t.Fatal(err)
		}
		if err := put(more); err != nil {
			t.Errorf("after one was removed: %v", err)
		}
		if list, err := s.Skills.List(t.Context(), "acct_1"); err != nil || len(list) != schemas.MaxSkills {
			t.Errorf("%d skills: %v", len(list), err)
		}
	})
}
