package natsauth

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/sandjet/sandjet/streams/embedded"
)

// Limits bound what the NATS clients of one tenant may use of a server. Zero means the default, negative no limit.
type Limits struct {
	// Connections is how many may be open at the same time. Default 64. The embedded server alone can count them.
	Connections int
	// Subscriptions is how many one connection may have. Default 1,000.
	Subscriptions int
	// Payload is how many bytes one message may have. Default 1 MiB, which is the embedded server's limit for all.
	Payload int
	// Pending is how many bytes may wait for all connections of a tenant together, because they do not read.
	// Above it the connection with the most of them is closed. Default 16 MiB. On the embedded server only.
	Pending int64
}

// The defaults of [Limits].
const (
	DefaultConnections   = 64
	DefaultSubscriptions = 1000
	DefaultPending       = 16 << 20
)

func (l Limits) filled() Limits {
	fill := func(n *int, d int) {
		switch {
		case *n == 0:
			*n = d
		case *n < 0:
			*n = jwt.NoLimit
		}
	}
	fill(&l.Connections, DefaultConnections)
	fill(&l.Subscriptions, DefaultSubscriptions)
	fill(&l.Payload, embedded.MaxPayload)
	if l.Pending == 0 {
		l.Pending = DefaultPending
	}
	return l
}

// apply sets the limits of a tenant's account on an embedded server. It must come before the account's imports and exports, since the
// server replaces an account's claims as a whole.
func (l Limits) apply(srv *server.Server, account *server.Account) {
	l = l.filled()
	claims := jwt.NewAccountClaims(account.Name)
	claims.Name = account.Name
	claims.Limits.Conn, claims.Limits.Subs, claims.Limits.Payload = int64(l.Connections), int64(l.Subscriptions), int64(l.Payload)
	claims.Limits.LeafNodeConn = 0
	srv.UpdateAccountClaims(account, claims)
}

// user sets the limits of a user on an outside server, which has limits per connection only.
func (l Limits) user(u *jwt.UserClaims) {
	l = l.filled()
	u.Subs, u.Limits.Payload = int64(l.Subscriptions), int64(l.Payload)
}

// Run closes connections of tenants with too much unread data, until ctx ends. The server has one limit for all connections, which must be
// high for Sandjet's own batches.
func (a *Authenticator) Run(ctx context.Context) {
	const every = 500 * time.Millisecond
	limit := a.limits.filled().Pending
	srv := a.server.Load()
	if limit <= 0 || srv == nil {
		return
	}
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		found, err := srv.Connz(&server.ConnzOptions{Username: true, Sort: server.ByPending, Limit: 1 << 20})
		if err != nil {
			a.log.Warn("pending bytes of connections unknown", "error", err)
			continue
		}
		for _, c := range tooMuchPending(found.Conns, limit) {
			a.log.Info("NATS connection of an account closed: its client does not read, and too many bytes are pending",
				"account", strings.TrimPrefix(c.Account, tenantPrefix),
				"connection", c.Cid, "bytes", c.Pending)
			_ = srv.DisconnectClientByID(c.Cid) // it may have gone by itself
		}
	}
}

// tooMuchPending returns the connections to close so that each tenant is within the limit, those with the most unread data first. It is
// pure.
func tooMuchPending(conns []*server.ConnInfo, limit int64) []*server.ConnInfo {
	sums := map[string]int64{}
	for _, c := range conns {
		sums[c.Account] += int64(c.Pending)
	}
	var over []*server.ConnInfo
	for _, c := range slices.SortedFunc(slices.Values(conns), func(a, b *server.ConnInfo) int { return cmp.Compare(b.Pending, a.Pending) }) {
		if strings.HasPrefix(c.Account, tenantPrefix) && sums[c.Account] > limit {
			sums[c.Account] -= int64(c.Pending)
			over = append(over, c)
		}
	}
	return over
}
