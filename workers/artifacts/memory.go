package artifacts

import (
	"sync"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// LookBytes is how much memory one look at a workspace takes at most, LooksBytesOfAccount what all looks of an account's calls take
	// that are in progress in a process, LooksBytes what those of all accounts take. What is looked at beyond is said to be more than
	// is looked at.
	LookBytes           = 8 << 20
	LooksBytesOfAccount = 32 << 20
	LooksBytes          = 4 * LooksBytesOfAccount
	// SumsOfAccount and SumsBytesOfAccount are how many digests of an account's files a process remembers, and their bytes with their
	// names. SumsAccounts is of how many accounts: those that ended a call last.
	SumsOfAccount      = 4000
	SumsBytesOfAccount = 1 << 20
	SumsAccounts       = 64
)

// Memory is what a process holds of the workspaces that its calls run in, bounded for each account and for all. It may be used from many
// goroutines.
type Memory struct {
	mu    sync.Mutex
	looks int64
	of    map[schemas.AccountID]int64 // bytes of looks; those that hold none are not in it
	sums  map[schemas.AccountID]*sums
	turn  uint64
}

// sums are digests of one account's files by what they were, so that a file is read once however many calls look at it.
type sums struct {
	of    map[string]known
	bytes int64
	used  uint64 // turn of the last use
}

type known struct {
	info workspacefs.Info
	sum  string
}

// Of is what is remembered for one call of an account. The caller releases it when the call has ended.
func (m *Memory) Of(a schemas.AccountID) *CallMemory { return &CallMemory{memory: m, account: a} }

// CallMemory is what is held for one call. It may be used from many goroutines, also after it was released: then it holds nothing more.
type CallMemory struct {
	memory  *Memory
	account schemas.AccountID

	// Of the memory's mutex.
	bytes    int64
	released bool
}

// Release returns what looks have taken. Only the first call does anything; the nil CallMemory has nothing to give.
func (r *CallMemory) Release() {
	if r == nil {
		return
	}
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	r.released = true
	if r.bytes == 0 {
		return
	}
	m.looks -= r.bytes
	if m.of[r.account] -= r.bytes; m.of[r.account] == 0 {
		delete(m.of, r.account)
	}
	r.bytes = 0
}

// grow takes n bytes more for one Look, or none.
func (r *CallMemory) grow(n int64) bool {
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.released || m.looks+n > LooksBytes || m.of[r.account]+n > LooksBytesOfAccount {
		return false
	}
	if m.of == nil {
		m.of = map[schemas.AccountID]int64{}
	}
	m.looks += n
	m.of[r.account] += n
	r.bytes += n
	return true
}

// get is the digest of a file that is what it was, empty where it is not known.
func (r *CallMemory) get(key string, info workspacefs.Info) string {
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sums[r.account]
	if s == nil {
		return ""
	}
	m.turn++
	s.used = m.turn
	if k, ok := s.of[key]; ok && k.info.Same(info) {
		return k.sum
	}
	return ""
}

// put remembers a digest. An account that has as many as it may begins again; of too many accounts that goes which was not used longest.
func (r *CallMemory) put(key string, info workspacefs.Info, sum string) {
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sums[r.account]
	if s == nil {
		if m.sums == nil {
			m.sums = map[schemas.AccountID]*sums{}
		}
		if len(m.sums) >= SumsAccounts {
			m.forgetOldest()
		}
		s = &sums{of: map[string]known{}}
		m.sums[r.account] = s
	}
	m.turn++
	s.used = m.turn
	size := int64(len(key) + len(sum) + entryBytes)
	if _, is := s.of[key]; !is {
		if len(s.of) >= SumsOfAccount || s.bytes+size > SumsBytesOfAccount {
			s.of, s.bytes = map[string]known{}, 0
		}
		s.bytes += size
	}
	s.of[key] = known{info, sum}
}

// forgetOldest forgets the account that was not used longest. m.mu is held.
func (m *Memory) forgetOldest() {
	var oldest schemas.AccountID
	for a, s := range m.sums {
		if o := m.sums[oldest]; o == nil || s.used < o.used {
			oldest = a
		}
	}
	delete(m.sums, oldest)
}

// Held is how many bytes looks of an account's calls hold, and how many digests of its files are remembered.
func (m *Memory) Held(a schemas.AccountID) (bytes int64, digests int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sums[a]; s != nil {
		digests = len(s.of)
	}
	return m.of[a], digests
}
