package files

import (
	"net/http"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// TransferBytes is how much memory the transfers of one gateway take, beside what is written to clients.
	TransferBytes = 4 * TransferBytesOfAccount
	// TransferBytesOfAccount is how much of it those of one account take: so many uploads at the same time as have two pieces each.
	TransferBytesOfAccount = 64 << 20
	// uploadBytes is what an upload takes: the piece that arrives, and that which is on its way to a worker.
	uploadBytes = 2 * schemas.MaxFileChunk
	// perName is what a name of an archive takes beside its bytes, about.
	perName = 256
)

// memory is the memory that one request occupies of the limit for transfers.
type memory struct {
	ledger  *quota.Ledger
	account schemas.AccountID
	place   *quota.Place
}

func (f *Files) memory(a schemas.AccountID) *memory {
	return &memory{ledger: f.transfers, account: a}
}

// take reserves n more bytes. Codes: exhausted (the account has reached its limit), unavailable (this gateway has).
func (m *memory) take(n int64) error {
	var full quota.Full
	if m.place == nil {
		m.place, full = m.ledger.TakeMany(m.account, n)
	} else {
		full = m.place.Grow(n)
	}
	switch full {
	case quota.Account:
		return schemas.Errorf(schemas.Exhausted,
			"the account's transfers of files take as much of this gateway's memory as they may: send fewer at once")
	case quota.All:
		return schemas.Errorf(schemas.Unavailable, "transfers of files take as much of this gateway's memory as they may: come back later")
	case quota.Free:
	}
	return nil
}

// begin is take for a request of which nothing was read yet: if it fails, the client may send the request again later.
func (m *memory) begin(w http.ResponseWriter, n int64) error {
	err := m.take(n)
	if err != nil {
		web.Later(w.Header())
	}
	return err
}

func (m *memory) release() { m.place.Release() }
