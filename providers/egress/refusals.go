package egress

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// Refusal is a connection or DNS query of a sandbox that was refused.
type Refusal struct {
	Name string     `json:"name,omitzero"` // empty: an address was asked for
	Addr netip.Addr `json:"address,omitzero"`
	Port uint16     `json:"port,omitzero"`
	Rule string     `json:"rule"`
	// Text is the reason, for the caller of the command.
	Text string `json:"text"`
}

// mostRefusals is how many different refusals are remembered.
const mostRefusals = 64

// refusals stores the latest distinct refusals.
type refusals struct {
	mu   sync.Mutex
	seq  uint64
	lost uint64 // the latest that was forgotten
	list []numbered
}

type numbered struct {
	Refusal
	seq uint64
}

// add stores a refusal and reports whether it is a new one.
func (l *refusals) add(r Refusal) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	for i := range l.list {
		if o := &l.list[i]; o.Name == r.Name && o.Addr == r.Addr && o.Port == r.Port && o.Rule == r.Rule {
			o.seq = l.seq
			return false
		}
	}
	if len(l.list) >= mostRefusals {
		oldest := slices.MinFunc(l.list, func(a, b numbered) int { return cmp.Compare(a.seq, b.seq) })
		l.lost = max(l.lost, oldest.seq)
		l.list = slices.DeleteFunc(l.list, func(o numbered) bool { return o.seq == oldest.seq })
	}
	l.list = append(l.list, numbered{r, l.seq})
	return true
}

func (l *refusals) mark() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq
}

// since returns the distinct refusals after a mark, oldest first, and whether more were dropped.
func (l *refusals) since(mark uint64) (list []Refusal, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after := slices.DeleteFunc(slices.Clone(l.list), func(o numbered) bool { return o.seq <= mark })
	slices.SortFunc(after, func(a, b numbered) int { return cmp.Compare(a.seq, b.seq) })
	for _, o := range after {
		list = append(list, o.Refusal)
	}
	return list, l.lost > mark
}

// mostNotices is how many refusals are shown to the caller of a command.
const mostNotices = 8

// Notices describes the refusals since a mark, one line for each reason, for the user of a command in the sandbox; nil if there are none.
// Commands that run there at the same time share them.
func (r *Relay) Notices(mark uint64) []byte {
	list, more := r.Since(mark)
	var b bytes.Buffer
	shown := map[string]bool{} // a host that is asked for at two addresses says the same twice
	for _, f := range list {
		if shown[f.Text] {
			continue
		}
		if len(shown) == mostNotices {
			more = true
			break
		}
		shown[f.Text] = true
		fmt.Fprintf(&b, "sandjet: network: %s\n", f.Text)
	}
	if more {
		b.WriteString("sandjet: network: more was refused\n")
	}
	return b.Bytes()
}
