package workers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/skills"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/tools"
)

// shelf is the skills of accounts: of an agent, those of its account.
type shelf struct {
	t   *testing.T
	bus *streams.Bus

	mu sync.Mutex
	of map[schemas.AccountID][]schemas.Skill
}

func (s *shelf) OfAgent(_ context.Context, a schemas.AccountID, _ schemas.AgentID) ([]schemas.Skill, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[a], nil
}

// put makes text the account's skill pdf.
func (s *shelf) put(a schemas.AccountID, text string) {
	s.t.Helper()
	b, err := skills.New([]skills.File{
		{Path: "SKILL.md", Content: []byte("---\nname: pdf\ndescription: d\n---\n" + text)}, {Path: "a/b", Content: []byte(text)},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	tar, err := b.Tar()
	if err != nil {
		s.t.Fatal(err)
	}
	digest, err := streams.StoreSkill(s.t.Context(), s.bus, a, tar)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[a] = []schemas.Skill{{SkillManifest: b.Manifest, Account: a, Digest: digest, Size: int64(len(tar))}}
}

func loading(name string, change ...func(*schemas.Call)) func(*schemas.Call) {
	return func(c *schemas.Call) {
		c.Input = fmt.Appendf(nil, `{"name":%q}`, name)
		for _, f := range change {
			f(c)
		}
	}
}

func holds(t *testing.T, dir, text string) {
	t.Helper()
	for _, top := range []string{schemas.SkillsFolder, schemas.OtherSkillsFolder} {
		names, err := os.ReadDir(filepath.Join(dir, top))
		b, rerr := os.ReadFile(filepath.Join(dir, top, "pdf/a/b"))
		if err != nil || rerr != nil || string(b) != text {
			t.Errorf("%s has %v: %q, %v %v", top, names, b, err, rerr)
		}
	}
}

// TestAWorkerDiesWhileItStagesASkill: the next one that has the call does all of it again, and the call has its one result.
func TestAWorkerDiesWhileItStagesASkill(t *testing.T) {
	for _, at := range []stage{atStarted, atStaging, atRan} {
		inWorld(t, func(t *testing.T, w *world) {
			p := &filing{dir: t.TempDir()}
			s := &shelf{t: t, bus: w.bus, of: map[schemas.AccountID][]schemas.Skill{}}
			s.put(testAccount, "first")
			died := make(chan *employed, 1)
			w.employ(p, func(wk *Worker) { wk.Skills = s }, w.dieAt(at, died))
			c := w.publish(w.call("call_1", schemas.ToolLoadSkill, loading("pdf")))
			<-died
			w.employ(p, func(wk *Worker) { wk.Skills = s })
			if r := w.want(c, schemas.StatusCompleted); !strings.Contains(r.Text, "first") {
				t.Errorf("%s", r.Text)
			}
			w.once(c)
			holds(t, p.dir, "first")
		})
	}
}

// TestSkillsOfCalls: a new digest replaces what is staged, two at once are both right, another tenant's skill of that name is another, and
// one that is not there is said with those that are.
func TestSkillsOfCalls(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &filing{dir: t.TempDir()}
		s := &shelf{t: t, bus: w.bus, of: map[schemas.AccountID][]schemas.Skill{}}
		s.put(testAccount, "first")
		s.put("acct_other", "of another")
		w.employ(p, func(wk *Worker) { wk.Skills = s })
		one := w.publish(w.call("call_1", schemas.ToolLoadSkill, loading("pdf")))
		two := w.publish(w.call("call_2", schemas.ToolLoadSkill, loading("pdf")))
		w.want(one, schemas.StatusCompleted)
		w.want(two, schemas.StatusCompleted)
		holds(t, p.dir, "first")
		s.put(testAccount, "second")
		three := w.publish(w.call("call_3", schemas.ToolLoadSkill, loading("pdf")))
		if r := w.want(three, schemas.StatusCompleted); !strings.Contains(r.Text, "second") {
			t.Errorf("%s", r.Text)
		}
		holds(t, p.dir, "second")
		r := w.want(w.publish(w.call("call_4", schemas.ToolLoadSkill, loading("doc"))), schemas.StatusFailed)
		if r.Error.Code != schemas.NotFound || !strings.Contains(r.Text, "use one of pdf") {
			t.Errorf("%+v %s", r.Error, r.Text)
		}
		other := w.call("call_5", schemas.ToolLoadSkill, loading("pdf", func(c *schemas.Call) { c.Account = "acct_other" }))
		if r := w.want(w.publish(other), schemas.StatusCompleted); !strings.Contains(r.Text, "of another") {
			t.Errorf("%s", r.Text)
		}
		if p.count() != 0 {
			t.Errorf("%d runs where the files are reached directly", p.count())
		}
	})
}

// TestASkillThatWasReplacedWhileItWasRead: the call takes the one that is there now.
func TestASkillThatWasReplacedWhileItWasRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &filing{dir: t.TempDir()}
		s := &shelf{t: t, bus: w.bus, of: map[schemas.AccountID][]schemas.Skill{}}
		s.put(testAccount, "second")
		now := s.of[testAccount]
		gone := now[0]
		gone.Digest = strings.Repeat("0", 64)
		first := true
		w.employ(p, func(wk *Worker) {
			wk.Skills = shown(func() []schemas.Skill {
				if first {
					first = false
					return []schemas.Skill{gone}
				}
				return now
			})
		})
		w.want(w.publish(w.call("call_1", schemas.ToolLoadSkill, loading("pdf"))), schemas.StatusCompleted)
		holds(t, p.dir, "second")
	})
}

type shown func() []schemas.Skill

func (a shown) OfAgent(context.Context, schemas.AccountID, schemas.AgentID) ([]schemas.Skill, error) {
	return a(), nil
}

// TestLoadsShareABudget: skills that are being loaded for one account take its share of memory and no more, and another account's calls load
// theirs meanwhile. All are loaded in the end.
//
//guarantee:bounds
func TestLoadsShareABudget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const calls, parts = 8, 4
		p := &filing{dir: t.TempDir()}
		s := &shelf{t: t, bus: w.bus, of: map[schemas.AccountID][]schemas.Skill{}}
		s.put("acct_other", "of another")
		files := []skills.File{{Path: "SKILL.md", Content: []byte("---\nname: pdf\ndescription: d\n---\n")}}
		for n := range parts {
			files = append(files, skills.File{Path: fmt.Sprint("data/", n), Content: make([]byte, schemas.MaxSkillFile)})
		}
		b, err := skills.New(files)
		if err != nil {
			t.Fatal(err)
		}
		tar, err := b.Tar()
		if err != nil {
			t.Fatal(err)
		}
		digest, err := streams.StoreSkill(t.Context(), w.bus, testAccount, tar)
		if err != nil {
			t.Fatal(err)
		}
		s.of[testAccount] = []schemas.Skill{{SkillManifest: b.Manifest, Account: testAccount, Digest: digest, Size: int64(len(tar))}}

		var mu sync.Mutex
		staging, open := map[schemas.CallID]bool{}, make(chan struct{})
		w.employ(p, func(wk *Worker) {
			wk.Skills = s
			wk.Slots = 2 * calls
			wk.at = func(at stage, c schemas.Call) error {
				if at == atStaging && c.Account == testAccount {
					mu.Lock()
					staging[c.ID] = true
					mu.Unlock()
					<-open
				}
				return nil
			}
		})
		var made []schemas.Call
		for n := range calls {
			made = append(made, w.publish(w.call(fmt.Sprint("call_", n), schemas.ToolLoadSkill, loading("pdf"))))
		}
		other := w.publish(w.call("call_other", schemas.ToolLoadSkill, loading("pdf", func(c *schemas.Call) { c.Account = "acct_other" })))
		w.want(other, schemas.StatusCompleted)
		time.Sleep(10 * time.Second) // until nothing moves any more
		most := int(SkillLoadBytesOfAccount / tools.SkillBytes(int64(len(tar))))
		mu.Lock()
		if n := len(staging); n != most {
			t.Errorf("%d skills are being loaded at once, %d fit the account's share", n, most)
		}
		mu.Unlock()
		close(open)
		for _, c := range made {
			w.want(c, schemas.StatusCompleted)
		}
	})
}
