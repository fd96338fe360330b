package files

import (
	"net/http"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// TransferBytes limits the memory of all transfers of a gateway, in bytes, beside what is written to clients.
	TransferBytes = 4 * TransferBytesOfAccount
	// TransferBytesOfAccount limits that of one account. It suffices for as many uploads as fit with two pieces each.
	TransferBytesOfAccount = 64 << 20
	// uploadBytes is the memory of an upload: the piece that is being received, and the one being sent to a worker.
	uploadBytes = 2 * schemas.MaxFileChunk
	// perName is about how much memory the name of an archive's entry takes beside its bytes.
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
