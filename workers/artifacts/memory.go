package artifacts

import (
	"sync"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// LookBytes is how much memory the listing of one workspace takes at most. Files beyond are reported as more than are listed.
	LookBytes = 8 << 20
	// LooksBytesOfAccount is how much the listings of an account's calls take together in a process.
	LooksBytesOfAccount = 32 << 20
	// LooksBytes is how much those of all accounts take together.
	LooksBytes = 4 * LooksBytesOfAccount
	// SumsOfAccount and SumsBytesOfAccount are how many digests of an account's files a process remembers, and their bytes with their
	// names. SumsAccounts is of how many accounts: those that ended a call last.
	SumsOfAccount      = 4000
	SumsBytesOfAccount = 1 << 20
	SumsAccounts       = 64
)

// Memory is what a process remembers of workspaces in which its calls run, bounded per account and in all. It may be used from many
// goroutines.
type Memory struct {
	mu    sync.Mutex
	looks int64
	of    map[schemas.AccountID]int64 // bytes of looks; those that hold none are not in it
	sums  map[schemas.AccountID]*sums
	turn  uint64
}

// sums are digests of one account's files by path and version, so that a file is read once however many calls list it.
type sums struct {
	of    map[string]known
	bytes int64
	used  uint64 // turn of the last use
}

type known struct {
	info workspacefs.Info
	sum  string
}

// Of returns the memory for one call of an account. The caller releases it when the call has ended.
func (m *Memory) Of(a schemas.AccountID) *CallMemory { return &CallMemory{memory: m, account: a} }

// CallMemory is the memory of one call. It may be used from many goroutines; after its release it takes nothing more.
type CallMemory struct {
	memory  *Memory
	account schemas.AccountID

	// Of the memory's mutex.
	bytes    int64
	released bool
}

// Release returns what listings have reserved. Only the first call has an effect; on a nil CallMemory it has none.
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

// grow reserves n more bytes for one Look, or none.
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

// get returns the digest of this version of a file, empty if it is unknown.
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

// put remembers a digest. An account that has reached its limit loses all of its digests first; with too many accounts, the least recently
// used one is forgotten.
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

// forgetOldest forgets the least recently used account. The caller holds m.mu.
func (m *Memory) forgetOldest() {
	var oldest schemas.AccountID
	for a, s := range m.sums {
		if o := m.sums[oldest]; o == nil || s.used < o.used {
			oldest = a
		}
	}
	delete(m.sums, oldest)
}

// Held returns how many bytes the listings of an account's calls occupy, and how many digests of its files are remembered.
func (m *Memory) Held(a schemas.AccountID) (bytes int64, digests int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sums[a]; s != nil {
		digests = len(s.of)
	}
	return m.of[a], digests
}
