package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/runfs"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/artifacts"
)

const (
	// lookWithin bounds the look at a workspace before a call, collectWithin that after it and the reading of what it has left.
	lookWithin    = 10 * time.Second
	collectWithin = time.Minute
	// lookNamedWithin bounds the look before a call for which files are named: a sandbox may have to start for it. Half of the time that the
	// call has left is a bound too.
	lookNamedWithin = 30 * time.Second
	// runTimes is how far the times of files may be behind where runs reach them: some sandboxes show whole seconds alone.
	runTimes = 2 * time.Second
)

// outputs is what a call leaves for people in its workspace. The nil outputs are those of a call that can leave none.
type outputs struct {
	w      *workerRun
	call   schemas.Call
	filer  providers.Filer // nil: runs alone reach the files
	mount  providers.Mount
	places artifacts.Places
	before artifacts.Look
	memory *artifacts.CallMemory
	skip   schemas.SkipReason // why nothing is looked for; empty: it is
	named  bool               // the call or its sandbox names files: runs may look for them, and what is not looked for is listed
	still  func() error       // asked before each artifact is stored: nil while the call is not another's or over
}

// outputsOf is how the artifacts of a call are found; nil: it can have none. Code: invalid (a pattern is invalid).
func (s *workerRun) outputsOf(known *evidence, sandbox schemas.Sandbox, files schemas.Workspace) (*outputs, error) {
	c := known.call
	writes := c.Tool == schemas.ToolBash || c.Tool == schemas.ToolWrite || c.Tool == schemas.ToolEdit
	if !writes || c.Job != "" || c.Workspace == "" {
		return nil, nil //nolint:nilnil // the nil outputs work
	}
	named, err := schemas.ParseArtifactPatterns("artifacts", c.Artifacts)
	if err != nil {
		return nil, err
	}
	usual, err := schemas.ParseArtifactPatterns("config.artifacts", sandbox.Artifacts)
	if err != nil {
		return nil, err
	}
	return s.outputsIn(c, slices.Concat(usual, named), files, newLiveCheck(known, s.inFlight).unfinished), nil
}

// outputsIn is how artifacts of a call are found in places of a workspace.
func (s *workerRun) outputsIn(c schemas.Call, places artifacts.Places, files schemas.Workspace, still func() error) *outputs {
	o := &outputs{w: s, call: c, mount: mountOf(c.Account, c.Workspace, files.Storage), places: places, named: len(places) > 0,
		memory: s.memory.Of(c.Account), still: still}
	var ok bool
	if o.filer, ok = providers.As[providers.Filer](s.Provider); !ok && !o.named { // runs beside each call are only made where files are named
		o.skip = schemas.SkipUnsupported
	}
	return o
}

// lookBefore looks at the places for artifacts before a call runs that has some time left. What cannot be looked at now is no reason not to
// run it.
func (o *outputs) lookBefore(ctx context.Context, left time.Duration) {
	if o == nil || o.skip != "" {
		return
	}
	most := lookWithin
	if o.named {
		most = min(lookNamedWithin, max(left/2, 0))
	}
	o.skip = o.within(ctx, most, func(ctx context.Context, c *artifacts.Collector) (done func(), err error) {
		look, err := c.Before(ctx)
		return func() { o.before = look }, err
	})
}

// within calls f with the files of the workspace in a goroutine that is left to itself when it does not end in time, and then what f
// returns in this one. It says why that was not possible.
func (o *outputs) within(ctx context.Context, d time.Duration,
	f func(context.Context, *artifacts.Collector) (done func(), err error)) schemas.SkipReason {
	if o.w.stuck.full(true) {
		return schemas.SkipTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	type end struct {
		done func()
		err  error
	}
	left, ended := new(leaving), make(chan end, 1)
	o.w.stuck.inProcess(left)
	o.w.runs.Go(func() {
		defer o.w.stuck.returned(left)
		done, err := o.open(ctx, f)
		ended <- end{done, err}
	})
	var e end
	select {
	case e = <-ended:
	case <-ctx.Done():
		select {
		case e = <-ended:
		case <-time.After(endGrace):
			o.w.stuck.abandon(left)
			o.w.Log.Error("look for artifacts did not end with its context, abandoned", "call", o.call.ID)
			return schemas.SkipTimeout
		}
	}
	switch code := schemas.CodeOf(e.err); {
	case e.err == nil:
		e.done()
		return ""
	case ctx.Err() != nil, code == schemas.Timeout:
		return schemas.SkipTimeout
	case code == schemas.Unsupported:
		return schemas.SkipUnsupported
	}
	o.w.Log.Warn("artifacts not looked for", "call", o.call.ID, "error", e.err)
	return schemas.SkipUnreadable
}

func (o *outputs) open(ctx context.Context, f func(context.Context, *artifacts.Collector) (func(), error)) (done func(), err error) {
	root, err := o.workspace(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the workspace: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return f(ctx, o.collector(root))
}

// workspace opens the files of the workspace: those that the worker reaches itself, else by runs.
func (o *outputs) workspace(ctx context.Context) (workspacefs.FS, error) {
	c := o.call
	if o.filer != nil {
		root, err := o.filer.OpenWorkspace(ctx, c.Account, o.mount)
		if schemas.CodeOf(err) != schemas.Unsupported || !o.named {
			return root, err
		}
	}
	return o.w.byRuns.files(c.Account, c.Workspace, o.mount, true, context.Cause), nil
}

// close forgets what the looks have found.
func (o *outputs) close() {
	if o != nil {
		o.memory.Release()
	}
}

func (o *outputs) collector(root workspacefs.FS) *artifacts.Collector {
	b, c := o.w.Bus, o.call
	return &artifacts.Collector{
		FS: root, Places: o.places, Call: c, Memory: o.memory, Now: b.Now,
		Store: artifacts.Store{
			Kept: func(ctx context.Context) (int, int64, error) {
				return streams.ArtifactsKept(ctx, b, c.Account, c.Conversation)
			},
			Room: func(ctx context.Context, n int64) error { return b.RoomFor(ctx, c.Account, int(n)) },
			Chunk: func(ctx context.Context, data []byte) (string, error) {
				return streams.StoreArtifactChunk(ctx, b, c.Account, data)
			},
		},
	}
}

// collect stores what the call has left, announces it, and adds it to the result: the bytes first, then what they are, then the event,
// so that nothing ever names what is not there. It continues for as long as a result may be written. An error ends the handling of the
// call here: the next worker finds what is stored, and what was not.
func (o *outputs) collect(hard context.Context, r *schemas.Result) error {
	if o == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(hard))
	defer cancel()
	defer context.AfterFunc(hard, func() { time.AfterFunc(resultGrace, cancel) })()
	absent := o.w.Bus.Absent()
	found, err := o.find(ctx, r)
	if err != nil {
		return err
	}
	return o.announce(ctx, r, nil, found, absent)
}

// find looks at what the call has left and stores its bytes.
func (o *outputs) find(ctx context.Context, r *schemas.Result) (found []streams.KeptArtifact, err error) {
	if o.skip == "" {
		o.skip = o.within(ctx, collectWithin, func(ctx context.Context, c *artifacts.Collector) (done func(), err error) {
			before := o.before
			if _, byRuns := c.FS.(*runfs.FS); byRuns && !before.Since.IsZero() {
				before.Since = before.Since.Add(-runTimes)
			}
			list, skipped, err := c.Collect(ctx, before)
			return func() { found, r.SkippedArtifacts = list, schemas.BoundSkipped(skipped) }, err
		})
	}
	if o.skip != "" && (o.named || o.skip != schemas.SkipUnsupported) {
		r.SkippedArtifacts = []schemas.SkippedArtifact{{Path: schemas.OutputsFolder, Reason: o.skip}}
	}
	if len(found) > 0 {
		return found, o.w.at(atBytes, o.call)
	}
	return found, nil
}

// announce stores and announces artifacts, those that are stored already first. Absent is when their events were not there.
func (o *outputs) announce(ctx context.Context, r *schemas.Result, stored []schemas.Artifact, found []streams.KeptArtifact,
	absent streams.Absence) error {
	b := o.w.Bus
	store := func(a schemas.Artifact) error {
		_, err := streams.StoreOnce(ctx, b, schemas.ArtifactEvent(o.call, a), absent)
		if err == nil {
			r.Artifacts = append(r.Artifacts, a)
		}
		return err
	}
	for _, a := range stored {
		if err := o.untilStored(ctx, func() error { return store(a) }); err != nil {
			return err
		}
	}
	for _, k := range found {
		if err := o.still(); err != nil {
			return streams.RetryAfter(retrySoon, err)
		}
		if err := o.untilStored(ctx, func() error { return streams.StoreArtifact(ctx, b, o.call.Account, k) }); err != nil {
			return err
		}
		if err := o.w.at(atKept, o.call); err != nil {
			return err
		}
		if err := o.untilStored(ctx, func() error { return store(k.Artifact) }); err != nil {
			return err
		}
	}
	if len(r.SkippedArtifacts) > 0 {
		r.Text = strings.TrimRight(r.Text, "\n") + "\n\n[" + lifecycle.SkippedText(r.SkippedArtifacts) + "]"
	}
	if len(r.Artifacts) == 0 {
		return nil
	}
	return o.w.at(atAnnounced, o.call)
}

// untilStored tries something on the log until it is done or ctx ends.
func (o *outputs) untilStored(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil {
			return nil
		}
		o.w.Log.Warn("artifact not announced, retrying", "call", o.call.ID, "attempt", try, "error", err)
		if schemas.CodeOf(err) == schemas.Invalid || !writeAgain.Sleep(ctx, try) {
			return streams.RetryAfter(retrySoon, fmt.Errorf("announce an artifact: %w", err))
		}
	}
}

// recover adds to a result what is stored of the artifacts already, and what was changed since a time and is there now. Absent is when
// the events about them were not there.
func (o *outputs) recover(ctx context.Context, r *schemas.Result, absent streams.Absence) error {
	stored, err := streams.ArtifactsOfCall(ctx, o.w.Bus, o.call)
	if err != nil {
		return err
	}
	found, err := o.find(ctx, r)
	if err != nil {
		return err
	}
	have := map[schemas.ArtifactID]bool{}
	for _, a := range stored {
		have[a.ID] = true
	}
	var fresh []streams.KeptArtifact
	for _, k := range found {
		if !have[k.Artifact.ID] {
			fresh = append(fresh, k)
		}
	}
	return o.announce(ctx, r, stored, fresh, absent)
}

// recoverArtifacts finds the artifacts of a call whose worker died: those that it has stored, and what was changed since the start of
// the call and is there now. What the workspace was before the call is not known any more.
func (s *workerRun) recoverArtifacts(ctx context.Context, known *evidence, r *schemas.Result) error {
	var (
		sandbox schemas.Sandbox
		files   schemas.Workspace
		err     error
	)
	if known.call.Workspace == "" {
		return nil
	}
	if files, err = s.Specs.Workspace(ctx, known.call.Account, known.call.Workspace); err == nil {
		sandbox, err = s.sandboxOf(ctx, known.call)
	}
	switch code := schemas.CodeOf(err); {
	case err == nil:
	case code.Retryable():
		return err
	default:
		return nil // its records are gone, and with them its files
	}
	o, err := s.outputsOf(known, sandbox, files)
	if o == nil || err != nil {
		return nil // an invalid pattern names nothing
	}
	defer o.close()
	o.before.Since = known.lastStart.Add(time.Since(s.Bus.Now()) - clockTick)
	return o.recover(ctx, r, s.Bus.AbsentAt(known.accepted()))
}
