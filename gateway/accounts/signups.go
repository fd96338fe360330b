package accounts

import (
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"net/netip"
	"sync"
	"time"
)

const (
	signupsPerHour = 5 // accounts made from one address, where every caller may make them
	mostSignups    = 10_000
)

// signups limits how many accounts unauthenticated clients make per hour, by address. It stores addresses only as salted hashes that no
// other process can compare. Each process counts for itself.
type signups struct {
	salt [16]byte

	mu   sync.Mutex
	made map[[32]byte][]time.Time
}

func newSignups() *signups {
	s := &signups{made: map[[32]byte][]time.Time{}}
	_, _ = rand.Read(s.salt[:]) // it never fails
	return s
}

// take counts one more sign-up from a remote address and returns 0, or returns how long the client must wait. When too many addresses are
// stored, new ones must wait.
func (s *signups) take(remote string, now time.Time) time.Duration {
	who := sha256.Sum256(append(s.salt[:], network(remote)...))
	s.mu.Lock()
	defer s.mu.Unlock()
	since := now.Add(-time.Hour)
	if len(s.made) >= mostSignups {
		maps.DeleteFunc(s.made, func(_ [32]byte, times []time.Time) bool { return len(after(times, since)) == 0 })
	}
	times := after(s.made[who], since)
	switch {
	case len(times) >= signupsPerHour:
		return times[len(times)-signupsPerHour].Sub(since)
	case s.made[who] == nil && len(s.made) >= mostSignups:
		return time.Hour
	}
	s.made[who] = append(times, now)
	return 0
}

// after returns the times later than since; the times must be ascending.
func after(times []time.Time, since time.Time) []time.Time {
	for len(times) > 0 && !times[0].After(since) {
		times = times[1:]
	}
	return times
}

// network returns the prefix that identifies one client: an IPv4 address, or a /64 of IPv6, which is what one client usually gets.
func network(remote string) string {
	const whole, half = 32, 64
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip, bits := at.Addr().Unmap().WithZone(""), whole
	if ip.Is6() {
		bits = half
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return remote
	}
	return p.String()
}
