//go:build linux

package box

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Protocol is the version of the frames. Both ends must have the same: they are parts of one build.
const Protocol = 8

// kind is the type of a frame.
type kind uint8

const (
	// To the spawner and back.
	kindMake kind = iota + 1
	kindMade
	// To init.
	kindSetup
	kindClaim
	kindExec
	kindSignal
	kindKill
	// From init.
	kindHello
	kindReady
	kindClaimed
	kindFailed
	kindStarted
	kindRefused
	kindExit
	kindKilled
)

// Mode is how a box is isolated from its host.
type Mode uint8

// The modes, from the strongest.
const (
	Isolated   Mode = iota // namespaces and a root of its own, and all of Landlocked
	Landlocked             // the host's view, restricted by landlock and seccomp
	Bare                   // an ordinary process
)

// makeFrame asks the spawner for a box. Its descriptors are init's end of a socket pair and, with
// Cgroup, a version 2 group.
type makeFrame struct {
	ID      uint64
	Mode    Mode
	HostNet bool
	HostID  int // host user and group of the box; 0: the spawner's own
	Cgroup  bool
	Tasks   []string // files of version 1 groups that take the thread that clones
}

// madeFrame is the answer to makeFrame, with a pidfd if Errno is 0.
type madeFrame struct {
	ID    uint64
	Pid   int
	Errno syscall.Errno
	Step  string
}

// Setup is the data from which init builds the box's view. It contains nothing of a tenant, because boxes are set up in advance.
type Setup struct {
	Mode    Mode
	HostNet bool
	// Pids is the most processes and threads at a time; 0: no limit.
	Pids int
	// Memory is the bytes that init's own watchdog allows; 0: something else limits it.
	Memory int64
	// Tmp is the most bytes of /tmp where the box has a root of its own, FileSize those of one file. 0: DefaultTmp,
	// DefaultFileSize.
	Tmp, FileSize int64
	// OpenFiles is how many files a process may have open. 0: DefaultOpenFiles.
	OpenFiles int
	// Relay asks for the sockets at which all that the box sends arrives: see [Box.Inside]. It goes with namespaces and
	// without HostNet.
	Relay bool
	// Ports are listened on. At most 48; none: connections to all ports are redirected, which not every kernel can.
	Ports []int
	// MaxABI is for tests: files are restricted as by a kernel whose Landlock has this ABI, where it has a later one. 0: as by the kernel.
	MaxABI int
}

// Limits of a box whose setup does not name them.
const (
	DefaultTmp       int64 = 256 << 20 // bytes
	DefaultFileSize  int64 = 1 << 30   // bytes
	DefaultOpenFiles       = 1024
)

// Claim assigns a box its files and makes init drop its rights. It is sent once.
type Claim struct {
	Mounts []Mount
	// Home is the directory that becomes the home of a box with a root of its own, one path component beside those of
	// Mounts. Empty: its home lies in memory.
	Home string
	// TempDir is the private directory of a box without a root of its own.
	TempDir string
	// Trust is a certificate, as PEM, that programs of a box with a root of its own trust beside those that the host trusts:
	// both are in [TrustFile]. Empty: there is no such file.
	Trust string
	// DenyNetwork has the filter refuse sockets where no namespace keeps the network away.
	DenyNetwork bool
}

// Mount is a workspace to mount: a directory below the spawner's working directory.
type Mount struct {
	Name     string // one path component
	ReadOnly bool
}

// Exec starts one run. Its descriptors are standard input, output and error.
type Exec struct {
	ID     uint64
	Script string
	Dir    string
	Env    []string
	Frugal bool // it may write to no file: to read and to delete is what is left
}

// Facts is what init found out when it dropped its rights.
type Facts struct {
	BootID   string
	Landlock int    // ABI, 0: the kernel has none
	Shell    string // path of bash, or of sh where there is none
	Watches  bool   // inotify is limited for this box alone
}

// signalFrame sends a signal to a run's process group.
type signalFrame struct {
	ID     uint64
	Signal int
}

// killFrame kills all processes of a run that have not ended by themselves after Moment milliseconds.
type killFrame struct {
	ID     uint64
	Moment int
}

// killedFrame reports that no process of a run is left. Killed counts the processes, besides the run's first, that had to be killed.
type killedFrame struct {
	ID     uint64
	Killed int
}

// Exit is how a run ended.
type Exit struct {
	ID     uint64
	Status int  // exit code, 128+n after signal n
	Left   bool // processes are left in the box
	OOM    bool // the watchdog killed it
}

// StepError is a step that failed while a box was made or a run started.
type StepError struct {
	ID    uint64 // of the run; 0: the box
	Step  string
	Errno syscall.Errno // 0 when it was none
	Text  string
}

// Error names the step and the reason.
func (e *StepError) Error() string { return e.Step + ": " + e.Text }

// Unwrap returns the error number.
func (e *StepError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

// stepError describes err as a failure of a step.
func stepError(step string, err error) *StepError {
	var errno syscall.Errno
	errors.As(err, &errno)
	return &StepError{Step: step, Errno: errno, Text: err.Error()}
}

// errFrame says that a frame cannot be read.
var errFrame = errors.New("box: malformed frame")

// writer builds a frame.
type writer []byte

func (w *writer) byte(v byte)  { *w = append(*w, v) }
func (w *writer) num(v int64)  { *w = binary.AppendVarint(*w, v) }
func (w *writer) str(v string) { *w = append(binary.AppendVarint(*w, int64(len(v))), v...) }
func (w *writer) bool(v bool) {
	if v {
		w.byte(1)
	} else {
		w.byte(0)
	}
}

// reader decodes a frame. After the first error all further values are zero.
type reader struct {
	p   []byte
	err error
}

func (r *reader) fail() {
	r.p, r.err = nil, errFrame
}

func (r *reader) byte() byte {
	if len(r.p) == 0 {
		r.fail()
		return 0
	}
	b := r.p[0]
	r.p = r.p[1:]
	return b
}

func (r *reader) bool() bool {
	b := r.byte()
	if b > 1 {
		r.fail()
	}
	return b == 1
}

func (r *reader) num() int64 {
	v, n := binary.Varint(r.p)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.p = r.p[n:]
	return v
}

func (r *reader) int() int {
	v := r.num()
	if v < -1<<31 || v > 1<<31-1 {
		r.fail()
		return 0
	}
	return int(v)
}

// count reads the number of elements that follow; each takes at least a byte, so more than the bytes left is an error.
func (r *reader) count() int {
	n := r.num()
	if n < 0 || n > int64(len(r.p)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) str() string {
	n := r.count()
	s := string(r.p[:n])
	r.p = r.p[n:]
	return s
}

// end returns the first error. Bytes left over are an error too.
func (r *reader) end() error {
	if r.err == nil && len(r.p) != 0 {
		r.fail()
	}
	return r.err
}

func (f makeFrame) encode(w *writer) {
	w.num(int64(f.ID)) // a counter
	w.byte(byte(f.Mode))
	w.bool(f.HostNet)
	w.num(int64(f.HostID))
	w.bool(f.Cgroup)
	w.num(int64(len(f.Tasks)))
	for _, t := range f.Tasks {
		w.str(t)
	}
}

func decodeMake(p []byte) (f makeFrame, err error) {
	r := reader{p: p}
	f = makeFrame{ID: uint64(r.num()), Mode: Mode(r.byte()), HostNet: r.bool(), HostID: r.int(), Cgroup: r.bool()} // a counter
	for range r.count() {
		f.Tasks = append(f.Tasks, r.str())
	}
	return f, r.end()
}

func (f madeFrame) encode(w *writer) {
	w.num(int64(f.ID)) // a counter
	w.num(int64(f.Pid))
	w.num(int64(f.Errno)) // below 4096
	w.str(f.Step)
}

func decodeMade(p []byte) (f madeFrame, err error) {
	r := reader{p: p}
	f = madeFrame{ID: uint64(r.num()), Pid: r.int(), Errno: syscall.Errno(r.num()), Step: r.str()} // counters
	return f, r.end()
}

func (s Setup) encode(w *writer) {
	w.byte(byte(s.Mode))
	w.bool(s.HostNet)
	w.num(int64(s.Pids))
	w.num(s.Memory)
	w.num(s.Tmp)
	w.num(s.FileSize)
	w.num(int64(s.OpenFiles))
	w.bool(s.Relay)
	w.num(int64(s.MaxABI))
	w.num(int64(len(s.Ports)))
	for _, p := range s.Ports {
		w.num(int64(p))
	}
}

func decodeSetup(p []byte) (s Setup, err error) {
	r := reader{p: p}
	s = Setup{Mode: Mode(r.byte()), HostNet: r.bool(), Pids: r.int(), Memory: r.num(), Tmp: r.num(), FileSize: r.num(),
		OpenFiles: r.int(), Relay: r.bool(), MaxABI: r.int()}
	for range r.count() {
		s.Ports = append(s.Ports, r.int())
	}
	return s, r.end()
}

func (c Claim) encode(w *writer) {
	w.str(c.TempDir)
	w.str(c.Home)
	w.str(c.Trust)
	w.bool(c.DenyNetwork)
	w.num(int64(len(c.Mounts)))
	for _, m := range c.Mounts {
		w.str(m.Name)
		w.bool(m.ReadOnly)
	}
}

func decodeClaim(p []byte) (c Claim, err error) {
	r := reader{p: p}
	c.TempDir, c.Home, c.Trust, c.DenyNetwork = r.str(), r.str(), r.str(), r.bool()
	for range r.count() {
		c.Mounts = append(c.Mounts, Mount{Name: r.str(), ReadOnly: r.bool()})
	}
	if err := CheckName(c.Home); r.err == nil && c.Home != "" && err != nil {
		return c, err
	}
	for _, m := range c.Mounts {
		if err := CheckName(m.Name); r.err == nil && err != nil {
			return c, err
		}
	}
	return c, r.end()
}

// CheckName returns an error unless name is one ordinary path component.
func CheckName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not the name of a directory", name)
	}
	return nil
}

func (e Exec) encode(w *writer) {
	w.num(int64(e.ID)) // a counter
	w.str(e.Script)
	w.str(e.Dir)
	w.bool(e.Frugal)
	w.num(int64(len(e.Env)))
	for _, v := range e.Env {
		w.str(v)
	}
}

func decodeExec(p []byte) (e Exec, err error) {
	r := reader{p: p}
	e = Exec{ID: uint64(r.num()), Script: r.str(), Dir: r.str(), Frugal: r.bool()} // a counter
	for range r.count() {
		e.Env = append(e.Env, r.str())
	}
	return e, r.end()
}

func (f signalFrame) encode(w *writer) {
	w.num(int64(f.ID)) // a counter
	w.num(int64(f.Signal))
}

func decodeSignal(p []byte) (f signalFrame, err error) {
	r := reader{p: p}
	f = signalFrame{ID: uint64(r.num()), Signal: r.int()} // a counter
	return f, r.end()
}

func (f killFrame) encode(w *writer) {
	w.num(int64(f.ID)) // a counter
	w.num(int64(f.Moment))
}

func decodeKill(p []byte) (f killFrame, err error) {
	r := reader{p: p}
	f = killFrame{ID: uint64(r.num()), Moment: r.int()} // a counter
	return f, r.end()
}

func (f killedFrame) encode(w *writer) {
	w.num(int64(f.ID)) // a counter
	w.num(int64(f.Killed))
}

func decodeKilled(p []byte) (f killedFrame, err error) {
	r := reader{p: p}
	f = killedFrame{ID: uint64(r.num()), Killed: r.int()} // a counter
	return f, r.end()
}

func (e Exit) encode(w *writer) {
	w.num(int64(e.ID)) // a counter
	w.num(int64(e.Status))
	w.bool(e.Left)
	w.bool(e.OOM)
}

func decodeExit(p []byte) (e Exit, err error) {
	r := reader{p: p}
	e = Exit{ID: uint64(r.num()), Status: r.int(), Left: r.bool(), OOM: r.bool()} // a counter
	return e, r.end()
}

func (e *StepError) encode(w *writer) {
	w.num(int64(e.ID)) // a counter
	w.str(e.Step)
	w.num(int64(e.Errno)) // below 4096
	w.str(e.Text)
}

func decodeStepError(p []byte) (*StepError, error) {
	r := reader{p: p}
	e := &StepError{ID: uint64(r.num()), Step: r.str(), Errno: syscall.Errno(r.num()), Text: r.str()} // counters
	return e, r.end()
}

func (f Facts) encode(w *writer) {
	w.num(Protocol)
	w.str(f.BootID)
	w.num(int64(f.Landlock))
	w.str(f.Shell)
	w.bool(f.Watches)
}

func decodeFacts(p []byte) (f Facts, err error) {
	r := reader{p: p}
	protocol := r.num()
	f = Facts{BootID: r.str(), Landlock: r.int(), Shell: r.str(), Watches: r.bool()}
	if err := r.end(); err != nil {
		return f, err
	}
	if protocol != Protocol {
		return f, fmt.Errorf("box: the box binary speaks protocol %d, this program %d: install both from one build", protocol, Protocol)
	}
	return f, nil
}

// encoder is a frame that can be sent.
type encoder interface{ encode(w *writer) }

// empty is a frame without a body: its kind is all it says.
type empty struct{}

func (empty) encode(*writer) {}
