package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// natsAccessFlags let accounts speak NATS themselves where the server is not the embedded one.
type natsAccessFlags struct {
	NATSCalloutKeys    string `name:"nats-callout-keys" placeholder:"FILE" group:"Log" help:"Seeds that answer the auth_callout requests of an outside server; made by \"sandjet secrets generate --nats-callout\". Default: they are not answered."`
	NATSCalloutAccount string `name:"nats-callout-account" placeholder:"NAME" default:"TENANTS" group:"Log" help:"Account of that server's configuration in which they are put; {account} in it stands for their id."`
	NATSPublicURL      string `name:"nats-public-url" placeholder:"URL" group:"Log" help:"URL of the server for accounts' own NATS clients, handed out with a credential. Default: where we reach it."`
}

// callout reads the keys for an outside server's questions; none: there are no questions. Codes: invalid, denied.
func (f natsAccessFlags) callout() (natsauth.CalloutKeys, bool, error) {
	const most = 64 << 10
	if f.NATSCalloutKeys == "" {
		return natsauth.CalloutKeys{}, false, nil
	}
	text, err := readKeys(f.NATSCalloutKeys, most)
	if err != nil {
		return natsauth.CalloutKeys{}, false, fmt.Errorf("--nats-callout-keys: %w", err)
	}
	keys, err := natsauth.ParseCalloutKeys(text)
	if err != nil {
		return natsauth.CalloutKeys{}, false, fmt.Errorf("--nats-callout-keys: %w", err)
	}
	return keys, true, nil
}

// addCallout adds the part that tells an outside server who may come in, where that is asked for.
func (n *node) addCallout(f natsAccessFlags, t tenantFlags) error {
	keys, asked, err := f.callout()
	switch {
	case err != nil || !asked:
		return err
	case n.server != nil:
		return schemas.Invalidf("nats-callout-keys", "is for a server outside: the embedded one knows the accounts by itself")
	}
	n.add("callout", natsauth.Callout{
		Bus: n.bus, Keys: keys, Account: f.NATSCalloutAccount, Tenants: n.tenant, Limits: t.limits(), Log: n.log.With("part", "callout"),
	}.Run)
	return nil
}

// natsURL is what clients are told to connect to.
func (n *node) natsURL(f natsAccessFlags) string {
	if f.NATSPublicURL != "" {
		return f.NATSPublicURL
	}
	return bareURLs(n.logURL)
}

// bareURLs takes users and passwords out of a list of addresses. What is no address is left out.
func bareURLs(list string) string {
	var bare []string
	for s := range strings.SplitSeq(list, ",") {
		if u, err := url.Parse(strings.TrimSpace(s)); err == nil && u.Host != "" {
			u.User = nil
			bare = append(bare, u.String())
		}
	}
	return strings.Join(bare, ",")
}

// tenant finds the account of a NATS connection by its key or by a password that was issued to it.
func (n *node) tenant(name, password string) (schemas.AccountID, time.Time, bool) {
	store := n.keys.Load()
	if store == nil {
		return "", time.Time{}, false // the records were not read yet
	}
	return store.AuthenticateNATS(name, password)
}

// followKeys has the records say who comes in over NATS, and cuts off from the server of this process, if
// there is one, who would not any more.
func (n *node) followKeys(store *records.Store) {
	if n.server != nil {
		store.KeysChanged = n.auth.Reprove
	}
	n.keys.Store(store)
}

// followTenants has the server of this process know the accounts in its log, until ctx ends. The log may
// come later: whoever opens it first decides about its form, and that is not this process.
func (n *node) followTenants(ctx context.Context, ring *seal.Ring) error {
	const pause = time.Second
	again := time.NewTicker(pause)
	defer again.Stop()
	for {
		if err := n.readTenants(ctx, ring); ctx.Err() == nil {
			n.log.Debug("the accounts are not read yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// readTenants reads the accounts and follows their changes until ctx ends or they cannot be read.
func (n *node) readTenants(ctx context.Context, ring *seal.Ring) error {
	bus, err := streams.Open(ctx, streams.Options{Server: n.server, Existing: true, Name: "sandjet-server", Log: n.log.With("part", "log"), Quotas: n.quotas})
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), drainPatience)
		defer stop()
		_ = bus.Close(ctx) // nothing was written
	}()
	store, err := records.Open(ctx, bus, ring, catalog())
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	n.followKeys(store)
	return store.Run(ctx)
}
