package modaltest

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// box is a sandbox of the service, protected by the service's lock.
type box struct {
	s       *Service
	request *pb.SandboxCreateV2Request
	id      string
	task    string
	tags    []*pb.SandboxTag
	created float64
	hidden  int // lists that it is missing from yet

	running *servicetest.Box
	result  *pb.GenericResult // nil: it runs
	gone    chan struct{}     // closed when nothing of it runs any more
	life    *time.Timer
	idle    *time.Timer
	execs   map[string]*process
	active  int // processes that run
}

// newID is an id as the service's are: letters that no id of its former kind has.
func newID() string {
	const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var b [26]byte
	_, _ = rand.Read(b[:]) // never fails
	for i := range b {
		b[i] = letters[b[i]%32]
	}
	b[0] = '0'
	return string(b[:])
}

// newBox returns a box that is not running yet. The lock is held.
func newBox(s *Service, r *pb.SandboxCreateV2Request) *box {
	created := float64(time.Now().Add(s.opt.ClockAhead).UnixMicro()) / 1e6
	for _, b := range s.boxes {
		created = max(created, b.created+1e-6) // no two are made at once
	}
	id := newID()
	return &box{
		s: s, request: r, id: "sb-" + id, task: "ta-" + id, tags: r.GetTags(), created: created, hidden: s.opt.ListLag,
		gone: make(chan struct{}), execs: map[string]*process{},
	}
}

func (b *box) name() string { return b.request.GetDefinition().GetName() }

func (b *box) hasTags(want []*pb.SandboxTag) bool {
	for _, w := range want {
		if !slices.ContainsFunc(b.tags, func(t *pb.SandboxTag) bool {
			return t.GetTagName() == w.GetTagName() && t.GetTagValue() == w.GetTagValue()
		}) {
			return false
		}
	}
	return true
}

// boot starts the processes of the box.
func (b *box) boot() error {
	d := b.request.GetDefinition()
	dir, err := b.s.folder("boxes", b.id)
	if err != nil {
		return err
	}
	var binds, readOnly []string
	for _, m := range d.GetVolumeMounts() {
		here, err := b.s.folder("volumes", m.GetVolumeId())
		if err != nil {
			return err
		}
		binds = append(binds, here, m.GetMountPath())
		if m.GetReadOnly() {
			readOnly = append(readOnly, m.GetMountPath())
		}
	}
	running, err := servicetest.Boot(servicetest.Options{
		Dir: dir, User: "nobody", Binds: binds, Network: d.GetNetworkAccess().GetNetworkAccessType() == pb.NetworkAccess_OPEN,
	})
	if err != nil {
		close(b.gone)
		return err
	}
	b.s.work.Go(func() {
		<-running.Over()
		b.s.mu.Lock()
		b.terminate(pb.GenericResult_GENERIC_STATUS_FAILURE)
		b.s.mu.Unlock()
		close(b.gone)
	})
	for _, path := range readOnly {
		if out, err := running.Command("root", "/", nil, "mount", "-o", "remount,bind,ro", path).CombinedOutput(); err != nil {
			running.End()
			return fmt.Errorf("%s: %w", out, err)
		}
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.running = running
	if b.result != nil { // the service was closed meanwhile
		running.End()
	}
	b.life = time.AfterFunc(time.Duration(d.GetTimeoutSecs())*time.Second, func() { b.s.Expire(b.id) })
	b.touch()
	return nil
}

// touch restarts the idle timer. The lock is held.
func (b *box) touch() {
	if b.idle != nil {
		b.idle.Stop()
	}
	after := b.request.GetDefinition().GetIdleTimeoutSecs()
	if after == 0 || b.active > 0 || b.result != nil {
		return
	}
	b.idle = time.AfterFunc(time.Duration(after)*time.Second, func() { b.s.Idle(b.id) })
}

// terminate ends the box. The first reason given stays. The lock is held.
func (b *box) terminate(why pb.GenericResult_GenericStatus) {
	if b.result != nil {
		return
	}
	b.result = pb.GenericResult_builder{Status: why}.Build()
	for _, t := range []*time.Timer{b.life, b.idle} {
		if t != nil {
			t.Stop()
		}
	}
	if b.running != nil {
		b.running.End()
	}
}
