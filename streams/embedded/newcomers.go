package embedded

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sandjet/sandjet/internal/wait"
)

// Connections of other processes to the embedded server have said nothing at first, and hold a descriptor each. The server bounds their
// number with that of all connections, and their time. What is beyond that of one address, or of all, is ended here: those that have
// waited for longest, for a client needs a moment to say who it is, and one whose connection is ended makes another.
const (
	newcomersOfAddress = 64                  // of one IPv4 address, or one /64 of IPv6, of those that are older than newcomerGrace
	newcomerGrace      = time.Second         // where there is room
	newcomersSeldom    = time.Second         // between two looks
	newcomersOften     = newcomersSeldom / 4 // where a quarter of the connections that there may be is there
)

// mostConnections is how many connections an embedded server takes: an eighth of the descriptors that the process may have, so that the
// files of the log keep theirs, and 256 at least.
func mostConnections(openFiles int) int {
	const share, least, most = 8, 256, 65_536
	return min(max(openFiles/share, least), most)
}

// newcomer is a connection that has not authenticated yet.
type newcomer struct {
	id    uint64
	from  netip.Prefix
	since time.Time
}

// tooMany returns the newcomers to close on a server that accepts most connections: of each address the oldest beyond
// [newcomersOfAddress], unless they are younger than [newcomerGrace] and all newcomers together take less than half of the connections;
// and then the oldest of all beyond that half. It is pure.
func tooMany(list []newcomer, most int, now time.Time) []uint64 {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b newcomer) int { // the youngest first
		return cmp.Or(b.since.Compare(a.since), cmp.Compare(b.id, a.id))
	})
	half, from := most/2, map[netip.Prefix]int{}
	var end []uint64
	left := 0
	for _, c := range list {
		from[c.from]++
		pressed := len(list) > half || now.Sub(c.since) >= newcomerGrace
		if left == half || from[c.from] > newcomersOfAddress && pressed {
			end = append(end, c.id)
			continue
		}
		left++
	}
	return end
}

// boundNewcomers closes unauthenticated connections when there are too many, until ctx ends.
func boundNewcomers(ctx context.Context, srv *server.Server, most int) {
	often := false
	for {
		pause := newcomersSeldom
		if often {
			pause = newcomersOften
		}
		if !wait.Sleep(ctx, pause) {
			return
		}
		all := srv.NumClients()
		often = all > most/4
		if all <= newcomersOfAddress {
			continue
		}
		for _, id := range tooMany(newcomersOf(srv, all), most, time.Now()) {
			_ = srv.DisconnectClientByID(id) // it has ended by itself meanwhile
		}
	}
}

// newcomersOf lists the unauthenticated connections from other processes. all is about how many connections there are.
func newcomersOf(srv *server.Server, all int) []newcomer {
	const more = 1024 // that came since they were counted
	conns, err := srv.Connz(&server.ConnzOptions{Username: true, Limit: all + more, State: server.ConnOpen})
	if err != nil {
		return nil // it refuses its options: a test shows that
	}
	var list []newcomer
	for _, c := range conns.Conns {
		from := addressOf(c.IP)
		if c.AuthorizedUser == "" && from.IsValid() { // connections of this process have no address
			list = append(list, newcomer{c.Cid, from, c.Start})
		}
	}
	return list
}

// addressOf returns the address by which connections are counted together: the IPv4 address, or the /64 of an IPv6 address, which one
// client has.
func addressOf(ip string) netip.Prefix {
	const network = 64
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return netip.Prefix{}
	}
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = network
	}
	p, _ := a.Prefix(bits) // fails for no bits of these
	return p
}
