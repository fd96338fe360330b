package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/membudget"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/skills"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/tools"
)

// Skills finds what load_skill may load. Its method may be called from many goroutines.
type Skills interface {
	// OfAgent returns the skills of an agent; of the whole account where none is named. Codes: not_found, unavailable.
	OfAgent(ctx context.Context, a schemas.AccountID, agent schemas.AgentID) ([]schemas.Skill, error)
}

const (
	// SkillLoadBytes is how much memory the skills take that one worker loads at the same time. Further loads wait, accounts in turn.
	SkillLoadBytes = 128 << 20
	// SkillLoadBytesOfAccount is how much of it one account takes: the largest skill fits.
	SkillLoadBytesOfAccount = SkillLoadBytes / 2
)

// loadWithin is what loading a skill may take, all of its runs together.
const loadWithin = 5 * time.Minute

// skillLoader stages a skill in the workspace of one call of load_skill.
type skillLoader struct {
	w      *workerRun
	call   schemas.Call
	mounts []providers.Mount
	// run carries a plan out in the call's sandbox.
	run  func(context.Context, tools.Plan) (providers.Result, error)
	left *leaving // the run that the worker may abandon
}

// load stages a skill in the call's workspace, in this process or by runs, and returns its SKILL.md. It may be done twice, also at
// the same time.
func (l *skillLoader) load(ctx context.Context, name string) (schemas.Result, error) {
	s, room, err := l.find(ctx, name)
	defer room.Release() // when nothing of the skill is here any more, also if the call was abandoned meanwhile
	if err != nil {
		if schemas.CodeOf(err).Retryable() || ctx.Err() != nil {
			return schemas.Result{}, err
		}
		return lifecycle.FailedResult(l.call, err), nil
	}
	filer, ok := providers.As[providers.Filer](l.w.Provider)
	if ok && !l.w.stuck.full(true) {
		root, err := filer.OpenWorkspace(ctx, l.call.Account, l.mounts[0])
		if err == nil {
			l.w.stuck.inProcess(l.left)
			r, err := s.RunNative(ctx, root)
			return r, errors.Join(err, root.Close())
		}
		if schemas.CodeOf(err) != schemas.Unsupported {
			return schemas.Result{}, fmt.Errorf("open the workspace: %w", err)
		}
	}
	var r schemas.Result
	for plan := range s.Plans() {
		got, err := l.run(ctx, plan)
		if err != nil {
			return r, err
		}
		if r = plan.Render(got); s.Done(r) {
			return r, nil
		}
	}
	return r, nil
}

// find finds a skill of the call's agent and reads its bundle, for which it takes room. One that was replaced while it was read is
// looked for again. The caller releases the room.
func (l *skillLoader) find(ctx context.Context, name string) (s tools.SkillStage, room *membudget.Room, err error) {
	const tries = 5
	if l.w.Skills == nil {
		return s, nil, schemas.Errorf(schemas.Unsupported, "this worker has no skills")
	}
	for try := 1; ; try++ {
		list, err := l.w.Skills.OfAgent(ctx, l.call.Account, l.call.Agent)
		if err != nil {
			return s, nil, err
		}
		i := slices.IndexFunc(list, func(k schemas.Skill) bool { return k.Name == name })
		if i < 0 {
			return s, nil, tools.NoSuchSkill(name, list)
		}
		if room, err = l.w.skillBytes.Take(ctx, string(l.call.Account), tools.SkillBytes(list[i].Size)); err != nil {
			return s, nil, schemas.Wrap(schemas.Unavailable, "", "other skills that are being loaded have the memory for them: try again", err)
		}
		s, err = l.read(ctx, list[i])
		if err == nil {
			return s, room, nil
		}
		room.Release() // it waits for nothing while it holds some
		if !errors.Is(err, schemas.ErrNotFound) || try == tries {
			return tools.SkillStage{}, nil, err
		}
	}
}

// read reads the bundle of a skill. Codes: not_found (it was replaced), unavailable.
func (l *skillLoader) read(ctx context.Context, k schemas.Skill) (tools.SkillStage, error) {
	tar, err := streams.ReadSkill(ctx, l.w.Bus, l.call.Account, k.Digest, k.Size)
	if err != nil {
		return tools.SkillStage{}, err
	}
	b, err := skills.Parse(tar)
	if err != nil {
		return tools.SkillStage{}, err
	}
	return tools.SkillStage{
		Call: l.call, Digest: k.Digest, Tar: tar, Bundle: b, Token: strings.TrimPrefix(schemas.NewID("stage_"), "stage_"),
		At: func() error { return l.w.at(atStaging, l.call) },
	}, nil
}
