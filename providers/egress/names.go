package egress

import (
	"container/list"
	"encoding/binary"
	"net/netip"
	"sync"
)

// pool is the network from which names get their addresses: it is set aside for tests of routers and never in use.
var pool = netip.MustParsePrefix("198.18.0.0/15") //nolint:gochecknoglobals // a constant

// NameServer is the address that a sandbox may ask for names. Any other will do as well where all of them lead to the relay.
var NameServer = netip.MustParseAddr("198.18.0.1") //nolint:gochecknoglobals // a constant

const (
	firstName = 16 // of the pool; those below are for services of the relay
	poolSize  = 1 << 17
)

// names assigns addresses of a pool to host names, for one sandbox. Addresses of names that were not used for long are withdrawn and then
// refused; they are reused only after the whole pool was used.
type names struct {
	most int

	mu     sync.Mutex
	next   uint32
	byName map[string]*list.Element
	byAddr map[netip.Addr]*list.Element
	recent list.List // of entry, the latest in use first
}

type entry struct {
	name string
	addr netip.Addr
}

func newNames(most int) *names {
	return &names{
		most: min(max(most, 1), poolSize/2), next: firstName, byName: map[string]*list.Element{}, byAddr: map[netip.Addr]*list.Element{},
	}
}

// addr returns the address of a name, assigning one if necessary.
func (n *names) addr(name string) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.byName[name]; e != nil {
		n.recent.MoveToFront(e)
		return value(e).addr
	}
	for n.recent.Len() >= n.most {
		last := n.recent.Back()
		delete(n.byName, value(last).name)
		delete(n.byAddr, value(last).addr)
		n.recent.Remove(last)
	}
	base := pool.Addr().As4()
	for {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(base[:])+n.next)
		if n.next++; n.next >= poolSize-1 {
			n.next = firstName
		}
		a := netip.AddrFrom4(b)
		if n.byAddr[a] != nil {
			continue
		}
		e := n.recent.PushFront(entry{name, a})
		n.byName[name], n.byAddr[a] = e, e
		return a
	}
}

// name returns the name that an address of the pool is assigned to; false if there is none.
func (n *names) name(a netip.Addr) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.byAddr[a]
	if e == nil {
		return "", false
	}
	n.recent.MoveToFront(e)
	return value(e).name, true
}

func value(e *list.Element) entry {
	v, _ := e.Value.(entry)
	return v
}
