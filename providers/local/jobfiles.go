//go:build linux

package local

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// What is kept of jobs that have ended: their ends for jobAge, mostJobs at most, and their outputs, mostJobBytes together with those
// of jobs that run. Beyond that the oldest of the account go that keeps the most: so no account can take those of another away by
// having many.
const (
	jobAge             = 7 * 24 * time.Hour
	mostJobs           = 1000
	mostJobBytes int64 = 8 << 30
)

// The files of a job, in a directory of its own. Nothing that runs in a box can reach them.
const (
	startFile = "start" // who it is; locked by the process that runs it
	endFile   = "end"   // how it ended
	newPrefix = "new-"  // of a directory that is being made
)

// lostWorker is why a job is lost that has no end, and no process that runs it.
const lostWorker = "the worker that ran it has ended"

// startRecord is the content of a start file.
type startRecord struct {
	ID       schemas.JobID     `json:"id"`
	Account  schemas.AccountID `json:"account,omitzero"` // unknown of jobs of older versions, which count as one account's
	Sandbox  schemas.Ref       `json:"sandbox"`
	Instance string            `json:"instance"`
	Began    time.Time         `json:"began"`
}

// endRecord is the content of an end file: a [providers.JobEnd] without the output's tail, which is in the log.
type endRecord struct {
	ExitCode     int       `json:"exit_code"`
	Stopped      bool      `json:"stopped,omitzero"`
	TimedOut     bool      `json:"timed_out,omitzero"`
	OOMKilled    bool      `json:"oom_killed,omitzero"`
	Lost         bool      `json:"lost,omitzero"`
	Reason       string    `json:"reason,omitzero"`
	Replaced     bool      `json:"replaced,omitzero"`
	ChildrenLeft int       `json:"children_left,omitzero"`
	LogBytes     int64     `json:"log_bytes"`
	LogTruncated bool      `json:"log_truncated,omitzero"`
	Finished     time.Time `json:"finished"`
}

func recordOf(e providers.JobEnd) endRecord {
	return endRecord{
		ExitCode: e.ExitCode, Stopped: e.Stopped, TimedOut: e.TimedOut, OOMKilled: e.OOMKilled, Lost: e.Lost, Reason: e.Reason,
		Replaced: e.Replaced, ChildrenLeft: e.ChildrenLeft, LogBytes: e.LogBytes, LogTruncated: e.LogTruncated, Finished: e.Finished,
	}
}

func (r endRecord) end() providers.JobEnd {
	return providers.JobEnd{
		ExitCode: r.ExitCode, Stopped: r.Stopped, TimedOut: r.TimedOut, OOMKilled: r.OOMKilled, Lost: r.Lost, Reason: r.Reason,
		Replaced: r.Replaced, ChildrenLeft: r.ChildrenLeft, LogBytes: r.LogBytes, LogTruncated: r.LogTruncated, Finished: r.Finished,
	}
}

// decodeEnd parses the content of an end file.
func decodeEnd(data []byte) (endRecord, error) {
	var r endRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return endRecord{}, fmt.Errorf("the end of a job: %w", err)
	}
	if r.LogBytes < 0 || r.ChildrenLeft < 0 || r.Finished.IsZero() {
		return endRecord{}, errors.New("the end of a job: a count is negative, or the time is missing")
	}
	return r, nil
}

// jobDirs manages the directories of all jobs in a state directory.
type jobDirs struct {
	dir string

	mu    sync.Mutex
	ended []endedJob
}

type endedJob struct {
	name    string
	account schemas.AccountID
	at      time.Time
	bytes   int64
}

// openJobs opens the job directories below state. Unfinished jobs of a dead worker count as lost.
func openJobs(state string) (*jobDirs, error) {
	d := &jobDirs{dir: filepath.Join(state, "jobs")}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
				_ = os.RemoveAll(filepath.Join(d.dir, e.Name())) // its maker has died
			}
			continue
		}
		if j, err := d.load(e.Name()); err == nil && !j.elsewhere {
			d.ended = append(d.ended, endedJob{e.Name(), j.account, j.end.Finished, j.log.kept()})
		}
	}
	d.prune(time.Now(), mostJobBytes, nil)
	return d, nil
}

// jobName returns the directory name of a job. It depends on the box, so that jobs of the same id in two boxes differ.
func jobName(box schemas.Ref, id schemas.JobID) string {
	sum := sha256.Sum256([]byte(box.ID + "\x00" + box.Epoch))
	return string(id) + "-" + hex.EncodeToString(sum[:8])
}

// begin creates a job's directory atomically, and locks its start file until the result is closed. The error is fs.ErrExist if the
// directory exists.
func (d *jobDirs) begin(name string, r startRecord) (*os.File, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("begin job: %w", err)
	}
	dir := filepath.Join(d.dir, newPrefix+r.Instance)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("begin job: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, startFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin job: %w", err), os.RemoveAll(dir))
	}
	if err = flock(f); err == nil {
		if _, err = f.Write(data); err == nil {
			err = os.Rename(dir, filepath.Join(d.dir, name))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin job: %w", err), f.Close(), os.RemoveAll(dir))
	}
	return f, nil
}

// flock locks f exclusively, or fails with EWOULDBLOCK if another process has locked it. The kernel releases the lock when this process
// ends.
func flock(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if rawErr := raw.Control(func(fd uintptr) { err = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }); rawErr != nil {
		return rawErr
	}
	return err
}

// load returns a job from its files: one that has ended, or that another process of this host runs. If no process runs it and it has no
// end, it was lost: load records that as its end.
func (d *jobDirs) load(name string) (*job, error) {
	dir := filepath.Join(d.dir, name)
	f, err := os.OpenFile(filepath.Join(dir, startFile), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	var start startRecord
	if err := json.NewDecoder(f).Decode(&start); err != nil {
		return nil, fmt.Errorf("load job: %w", err)
	}
	j := &job{ref: schemas.JobRef{Sandbox: start.Sandbox, ID: start.ID, Instance: start.Instance}, account: start.Account, name: name,
		done: closedChannel(), ready: closedChannel()}
	e, err := readEnd(dir)
	lost := errors.Is(err, fs.ErrNotExist)
	if lost {
		switch err := flock(f); {
		case errors.Is(err, unix.EWOULDBLOCK):
			j.elsewhere = true
		case err != nil:
			return nil, fmt.Errorf("load job: %w", err)
		default: // the holder of the lock may have recorded the end just before
			e, err = readEnd(dir)
			lost = errors.Is(err, fs.ErrNotExist)
		}
	}
	if j.log, err = openLog(dir, e.LogBytes); err != nil {
		return nil, err
	}
	j.end = e.end()
	if _, truncated := j.log.measure(); truncated { // its output has given way since
		j.end.LogTruncated = true
	}
	if lost && !j.elsewhere {
		j.end = providers.JobEnd{Lost: true, Reason: lostWorker, Finished: time.Now().UTC()}
		j.end.LogBytes, j.end.LogTruncated = j.log.measure()
		if err := writeEnd(dir, recordOf(j.end)); err != nil {
			return nil, err
		}
	}
	if j.end.Tail, _, _, err = j.log.read(-1, schemas.MaxJobLogs); err != nil {
		return nil, err
	}
	return j, nil
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// readEnd returns how a job ended; lost if its end file is damaged.
func readEnd(dir string) (endRecord, error) {
	data, err := os.ReadFile(filepath.Join(dir, endFile))
	if err != nil {
		return endRecord{}, fmt.Errorf("load job: %w", err)
	}
	r, err := decodeEnd(data)
	if err == nil {
		return r, nil
	}
	r = endRecord{Lost: true, Reason: "the record of its end is damaged"}
	if info, err := os.Stat(filepath.Join(dir, endFile)); err == nil {
		r.Finished = info.ModTime().UTC()
	}
	return r, nil
}

// writeEnd stores how a job ended, atomically and durably.
func writeEnd(dir string, r endRecord) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("end job: %w", err)
	}
	temp := filepath.Join(dir, endFile+".new")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("end job: %w", err)
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, filepath.Join(dir, endFile))
	}
	if err != nil {
		return fmt.Errorf("end job: %w", err)
	}
	return nil
}

// finish stores the end of a job, whose log keeps kept bytes.
func (d *jobDirs) finish(name string, account schemas.AccountID, e providers.JobEnd, kept int64) error {
	err := writeEnd(filepath.Join(d.dir, name), recordOf(e))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = append(d.ended, endedJob{name, account, e.Finished, kept})
	return err
}

// remove removes the directory of a job.
func (d *jobDirs) remove(name string) error {
	return os.RemoveAll(filepath.Join(d.dir, name))
}

// prune removes old jobs, and outputs of ended jobs so that all outputs, including those of running jobs, take at most most bytes. It
// ignores errors: the next process retries.
func (d *jobDirs) prune(now time.Time, most int64, running map[schemas.AccountID]int64) {
	d.mu.Lock()
	kept, old, emptied := retire(d.ended, now, most, most/2, running)
	d.ended = kept
	d.mu.Unlock()
	for _, e := range old {
		_ = d.remove(e.name)
	}
	d.emptyLogs(emptied)
}

// empty removes outputs of ended jobs until that many bytes are freed, and returns how many were.
func (d *jobDirs) empty(bytes int64, running map[schemas.AccountID]int64) (freed int64) {
	d.mu.Lock()
	total := sum(running)
	for _, e := range d.ended {
		total += e.bytes
	}
	kept, old, emptied := retire(d.ended, time.Time{}, max(total-bytes, 0), math.MaxInt64, running)
	d.ended = append(kept, old...)
	d.mu.Unlock()
	for _, e := range emptied {
		freed += e.bytes
	}
	d.emptyLogs(emptied)
	return freed
}

// emptyLogs removes the outputs of jobs; their ends stay.
func (d *jobDirs) emptyLogs(of []endedJob) {
	for _, e := range of {
		dir := filepath.Join(d.dir, e.name)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range entries {
			if strings.HasPrefix(f.Name(), segmentPrefix) {
				_ = os.Remove(filepath.Join(dir, f.Name()))
			}
		}
	}
}

// retire decides which ended jobs stay (kept) and which are removed (old), both oldest first. Emptied are those kept jobs whose output is
// to be removed: all outputs take at most most bytes and those of one account at most share, including the outputs of running jobs. It has
// no side effects.
func retire(ended []endedJob, now time.Time, most, share int64, running map[schemas.AccountID]int64) (kept, old, emptied []endedJob) {
	oldest := func(a, b endedJob) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.name, b.name)) }
	ended = slices.SortedFunc(slices.Values(ended), oldest)
	of := map[schemas.AccountID]*keptJobs{}
	count, total := 0, sum(running)
	for _, e := range ended {
		if now.Sub(e.at) > jobAge {
			old = append(old, e)
			continue
		}
		if of[e.account] == nil {
			of[e.account] = &keptJobs{bytes: running[e.account]}
		}
		of[e.account].add(e)
		count, total = count+1, total+e.bytes
	}
	for ; count > mostJobs; count-- {
		e := largest(of, byNumber).drop()
		total -= e.bytes
		old = append(old, e)
	}
	for k := largest(of, byBytes); k != nil && (total > most || k.bytes > share); k = largest(of, byBytes) {
		e := k.empty()
		total -= e.bytes
		emptied = append(emptied, e)
	}
	for _, k := range of {
		kept = append(kept, k.jobs...)
	}
	slices.SortFunc(kept, oldest)
	slices.SortFunc(old, oldest)
	return kept, old, emptied
}

// keptJobs are the ended jobs of an account that stay, oldest first.
type keptJobs struct {
	jobs  []endedJob
	bytes int64 // of outputs, with those of jobs that run
	full  int   // from here on there are outputs
}

func (k *keptJobs) add(e endedJob) { k.jobs, k.bytes = append(k.jobs, e), k.bytes+e.bytes }

// drop removes and returns the oldest job.
func (k *keptJobs) drop() endedJob {
	e := k.jobs[0]
	k.jobs, k.bytes = k.jobs[1:], k.bytes-e.bytes
	return e
}

// withOutput advances full to the oldest job that has an output, and reports whether there is one.
func (k *keptJobs) withOutput() bool {
	for k.full < len(k.jobs) && k.jobs[k.full].bytes == 0 {
		k.full++
	}
	return k.full < len(k.jobs)
}

// empty marks the output of the oldest job that has one as removed, and returns that job as it was before.
func (k *keptJobs) empty() endedJob {
	e := k.jobs[k.full]
	k.jobs[k.full].bytes = 0
	k.bytes -= e.bytes
	return e
}

func byNumber(k *keptJobs) (int64, bool) { return int64(len(k.jobs)), len(k.jobs) > 0 }

func byBytes(k *keptJobs) (int64, bool) { return k.bytes, k.withOutput() }

// largest returns the account's jobs with the largest size, among those for which size returns true; among equals those with the oldest
// job. Nil if there are none.
func largest(of map[schemas.AccountID]*keptJobs, size func(*keptJobs) (int64, bool)) (found *keptJobs) {
	var most int64
	for _, k := range of {
		n, ok := size(k)
		if ok && (found == nil || n > most || n == most && k.jobs[0].at.Before(found.jobs[0].at)) {
			found, most = k, n
		}
	}
	return found
}
