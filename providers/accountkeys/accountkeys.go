// Package accountkeys runs the sandboxes of accounts that have a key of their own at a service with that key, and those of other accounts
// with the operator's.
//
// # Which key
//
// A new sandbox is made with its account's key, where the account has one now. A kept sandbox stays with the key that it was made with: its
// ref names the account whose key that is. A key that is replaced by another one of the same team finds the same sandboxes. One that
// is taken away leaves its kept sandboxes at the service, in the account's own team: for calls they are gone.
//
// # Providers
//
// For each key there is a provider of its own, with its own cap of sandboxes, opened when it is first used and closed when it was not
// used for a while.
//
// # Keys of accounts
//
// It stands around the leaves of one service: one for the operator's key, and one for each key of an account, opened
// when it is used. --account-keys turns it on; the key is in the account's variables, under the names that the vendor's own tools read.
//
//   - A ref says whose key it is: refs of an account's own leaf begin with the account's id. So a ref alone is enough to find the
//     leaf, in any process.
//   - A sandbox stays with its key: one that was made with the operator's key before the account had one stays there; the next Reserve
//     makes another one, and the sweep ends the first as a second one of its key.
//   - The installation of own keys has a name of its own (-own), so that the operator's lists never show a sandbox that an account's
//     key shows too, also where both are of one team: the sweep would end one of the two, and they are one.
//   - A list that one account's key cannot give is partial (providers.PartialList): the sweep leaves that account's records and sandboxes
//     alone, and continues with the others.
//   - No key is a substitute for another: a key that is refused fails the account's calls.
package accountkeys

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// MaxOpen is how many providers of accounts' keys are open at a time. One that is used by a call is never closed, so there may be more
	// for as long as more are used.
	MaxOpen = 200
	// idleClose is how long one stays open that nothing uses.
	idleClose = 10 * time.Minute
	// listsAtOnce is how many of them are asked for their sandboxes at a time.
	listsAtOnce = 4
	// listWithin bounds one list, listBudget those of all keys: below what a sweep may take that an operator waits for.
	listWithin = 20 * time.Second
	listBudget = 40 * time.Second
	// enoughLost is how many lists in a row go without an answer until the service is taken to be unavailable, and no more keys are asked.
	enoughLost = 2 * listsAtOnce
)

// Leaf is the provider that is opened for a key: it has persistent sandboxes, lists them and ends runs.
type Leaf interface {
	providers.Provider
	providers.Reserver
	providers.Lister
	providers.RunEnder
	providers.Profiler
	io.Closer
}

// Options are the settings of [New]. All but Require are needed.
type Options struct {
	// Operator is the provider with the operator's key. It says what all of them can do. The caller closes it.
	Operator Leaf
	// Require refuses calls of accounts without a key of their own.
	Require bool
	// Key returns an account's own key; ok is false where it has none. Codes of the error: unavailable, denied (it has one that cannot be
	// read), invalid (a part of it is missing).
	Key func(ctx context.Context, account schemas.AccountID) (key []string, ok bool, err error)
	// Accounts lists the accounts that may have a key.
	Accounts func() []schemas.AccountID
	// Open opens a provider with a key, as Operator is but for that. Code invalid: it is no key.
	Open func(key []string) (Leaf, error)
	// Needs says to people what an account sets to have a key, such as "the variable E2B_API_KEY".
	Needs string
	Log   *slog.Logger
}

// Provider is the providers of all keys. Its methods may be called from many goroutines.
type Provider struct {
	o Options

	mu     sync.Mutex
	closed bool
	open   map[[sha256.Size]byte]*entry // by the digest of the key
	last   schemas.AccountID            // whose key was asked last for a list
}

// entry is an open provider.
type entry struct {
	leaf  Leaf
	users int
	used  time.Time
}

// New returns the providers of all keys. Where the operator's is a [providers.Pauser], so is the result.
func New(o Options) Leaf {
	p := &Provider{o: o, open: map[[sha256.Size]byte]*entry{}}
	if _, ok := o.Operator.(providers.Pauser); ok {
		return pausing{p}
	}
	return p
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Lister   = (*Provider)(nil)
	_ providers.RunEnder = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
	_ providers.Pauser   = pausing{}
	_ io.Closer          = (*Provider)(nil)
)

// ownPrefix begins the id of a ref whose sandbox was made with an account's key; the account and a slash follow. No service's ids begin so.
const ownPrefix = "own:"

// encode is a ref of an account's own provider as others see it.
func encode(account schemas.AccountID, ref schemas.Ref) schemas.Ref {
	if ref.IsZero() {
		return ref
	}
	ref.ID = ownPrefix + string(account) + "/" + ref.ID
	return ref
}

// decode returns the account with whose key a ref's sandbox was made (empty for the operator's key), and the provider's own ref.
func decode(ref schemas.Ref) (schemas.AccountID, schemas.Ref) {
	rest, own := strings.CutPrefix(ref.ID, ownPrefix)
	if !own {
		return "", ref
	}
	account, id, _ := strings.Cut(rest, "/")
	ref.ID = id
	return schemas.AccountID(account), ref
}

// Profile implements [providers.Profiler].
func (p *Provider) Profile() providers.Profile { return p.o.Operator.Profile() }

// StartLimit implements [providers.StartLimiter].
func (p *Provider) StartLimit() time.Duration { return providers.StartLimitOf(p.o.Operator) }

// errNoKey says that an account has no key of its own.
var errNoKey = errors.New("the account has no key of its own")

// own is the provider of an account's key. The caller calls release when it does not use it any more. [errNoKey]: there is none.
func (p *Provider) own(ctx context.Context, account schemas.AccountID) (leaf Leaf, release func(), err error) {
	key, ok, err := p.o.Key(ctx, account)
	switch {
	case err != nil:
		return nil, nil, err
	case !ok:
		return nil, nil, errNoKey
	}
	digest := sha256.Sum256([]byte(strings.Join(key, "\x00")))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, schemas.OpErrorf(schemas.Unavailable, "open", "the worker stops")
	}
	e := p.open[digest]
	if e == nil {
		leaf, err := p.o.Open(key)
		if err != nil {
			return nil, nil, schemas.Wrap(schemas.Unsupported, "open", "the account's own key cannot be used ("+p.o.Needs+")", err)
		}
		e = &entry{leaf: leaf}
		p.open[digest] = e
	}
	e.users++
	p.trim()
	return e.leaf, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		e.users--
		e.used = time.Now()
	}), nil
}

// trim closes providers that were not used for long and, if too many are open, the least recently used one. The caller holds the lock.
func (p *Provider) trim() {
	idle := func() (key [sha256.Size]byte, last *entry) {
		for k, e := range p.open {
			if e.users == 0 && (last == nil || e.used.Before(last.used)) {
				key, last = k, e
			}
		}
		return key, last
	}
	for {
		key, last := idle()
		if last == nil || len(p.open) <= MaxOpen && time.Since(last.used) < idleClose {
			return
		}
		delete(p.open, key)
		if err := last.leaf.Close(); err != nil { // nothing runs in it: it only closes connections
			p.o.Log.Debug("provider of an account's key not closed", "error", err)
		}
	}
}

// of returns the provider for a new sandbox of an account: with the account's own key if it has one (mine is true), otherwise with the
// operator's.
func (p *Provider) of(ctx context.Context, account schemas.AccountID) (leaf Leaf, mine bool, release func(), err error) {
	leaf, release, err = p.own(ctx, account)
	switch {
	case err == nil:
		return leaf, true, release, nil
	case !errors.Is(err, errNoKey):
		return nil, false, nil, err
	case p.o.Require:
		return nil, false, nil, schemas.OpErrorf(schemas.Unsupported, "open", "sandboxes of this provider run with keys of their accounts, and this account has none: set %s with \"sandjet variables set\"", p.o.Needs)
	}
	return p.o.Operator, false, func() {}, nil
}

// at returns the provider of a persistent sandbox. Code: not_found, it was made with a key that its account no longer has.
func (p *Provider) at(ctx context.Context, ref schemas.Ref) (leaf Leaf, account schemas.AccountID, inner schemas.Ref, release func(), err error) {
	account, inner = decode(ref)
	if account == "" {
		return p.o.Operator, "", inner, func() {}, nil
	}
	leaf, release, err = p.own(ctx, account)
	if errors.Is(err, errNoKey) {
		err = schemas.Wrap(schemas.NotFound, "find", "the sandbox was made with a key that its account has no more", err)
	}
	return leaf, account, inner, release, err
}

// Run implements [providers.Provider].
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	account := cmd.Spec.Account
	var (
		leaf    Leaf
		mine    bool
		release func()
		err     error
	)
	if cmd.Sandbox.IsZero() {
		leaf, mine, release, err = p.of(ctx, account)
	} else {
		leaf, account, cmd.Sandbox, release, err = p.at(ctx, cmd.Sandbox)
		mine = account != ""
	}
	if err != nil {
		return providers.Result{}, err
	}
	defer release()
	r, err := leaf.Run(ctx, cmd)
	if mine {
		r.Sandbox, err = encode(account, r.Sandbox), p.refused(err)
	}
	return r, err
}

// refused replaces the error of a denied request by one that says that the account's own key, not the worker's, was refused.
func (p *Provider) refused(err error) error {
	if err == nil || schemas.CodeOf(err) != schemas.Denied {
		return err
	}
	return schemas.Wrap(schemas.Denied, "open",
		"the service refuses the account's own key: set "+p.o.Needs+" with \"sandjet variables set\", or remove it", err)
}

// Reserve implements [providers.Reserver].
func (p *Provider) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	leaf, mine, release, err := p.of(ctx, spec.Account)
	if err != nil {
		return schemas.Ref{}, err
	}
	defer release()
	ref, err := leaf.Reserve(ctx, key, spec)
	if mine {
		ref, err = encode(spec.Account, ref), p.refused(err)
	}
	return ref, err
}

// Release implements [providers.Reserver]. A sandbox whose key was taken away cannot be ended by us: that is logged, and no error, since
// trying again changes nothing.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	leaf, account, inner, release, err := p.at(ctx, ref)
	if errors.Is(err, errNoKey) {
		p.o.Log.Warn("sandbox left at its service, its account's key was removed", "account", account, "sandbox", inner.ID)
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	return leaf.Release(ctx, inner)
}

// EndRun implements [providers.RunEnder]. Where the account has a key of its own the run may be older than that, so both are asked.
func (p *Provider) EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error {
	leaf, release, err := p.own(ctx, account)
	if errors.Is(err, errNoKey) {
		return p.o.Operator.EndRun(ctx, key, account, id)
	}
	if err != nil {
		return err
	}
	defer release()
	return errors.Join(leaf.EndRun(ctx, key, account, id), p.o.Operator.EndRun(ctx, key, account, id))
}

// ListKept implements [providers.Lister]. Where an account's own key does not list anything the error is a [providers.PartialList]. The keys
// are asked for a limited time, and no more of them once the service gives no answers; the next list begins with those that were not asked.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	boxes, err := p.o.Operator.ListKept(ctx, deployment)
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, listBudget)
	defer cancel()
	var (
		mu      sync.Mutex
		lost    int // lists in a row without an answer
		missing []schemas.AccountID
		work    sync.WaitGroup
	)
	turns := make(chan struct{}, listsAtOnce)
	mayAsk := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return lost < enoughLost && asking.Err() == nil
	}
	accounts := p.inTurn(p.o.Accounts())
	for n, account := range accounts {
		turns <- struct{}{}
		if !mayAsk() {
			<-turns
			mu.Lock()
			missing = append(missing, accounts[n:]...)
			mu.Unlock()
			p.o.Log.Warn("sandboxes of accounts' keys not listed, the service does not answer", "accounts", len(accounts)-n)
			break
		}
		p.asked(account)
		work.Go(func() {
			defer func() { <-turns }()
			own, err := p.listOwn(asking, deployment, account)
			mu.Lock()
			defer mu.Unlock()
			lost = lostInRow(lost, err)
			if boxes = append(boxes, own...); err != nil {
				p.o.Log.Debug("sandboxes of an account's key not listed", "account", account, "error", err)
				missing = append(missing, account)
			}
		})
	}
	work.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return boxes, &providers.PartialList{Accounts: missing}
	}
	return boxes, nil
}

// inTurn returns the accounts in the order in which they are listed, beginning after the one listed last, so that a list which ends early
// leaves out other accounts each time.
func (p *Provider) inTurn(accounts []schemas.AccountID) []schemas.AccountID {
	p.mu.Lock()
	defer p.mu.Unlock()
	accounts = slices.Sorted(slices.Values(accounts))
	n, found := slices.BinarySearch(accounts, p.last)
	if found {
		n++
	}
	return slices.Concat(accounts[n:], accounts[:n])
}

// asked records whose key was used last for a list.
func (p *Provider) asked(account schemas.AccountID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = account
}

// lostInRow returns the number of consecutive lists without an answer, after one with err. A refused or throttled key says nothing about
// the service.
func lostInRow(lost int, err error) int {
	switch {
	case errors.Is(err, context.DeadlineExceeded), schemas.CodeOf(err) == schemas.Unavailable:
		return lost + 1
	case errors.Is(err, errNoKey):
		return lost
	default:
		return 0
	}
}

// listOwn lists the persistent sandboxes of an account's own key; none if the account has no key. It leaves out those of other accounts
// that share the key.
func (p *Provider) listOwn(ctx context.Context, deployment string, account schemas.AccountID) ([]providers.KeptBox, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	leaf, release, err := p.own(ctx, account)
	if errors.Is(err, errNoKey) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer release()
	all, err := leaf.ListKept(ctx, deployment)
	all = slices.DeleteFunc(all, func(b providers.KeptBox) bool { return b.Account != account })
	for i := range all {
		all[i].Ref = encode(account, all[i].Ref)
	}
	return all, err
}

// Close closes the providers of accounts' keys; it blocks for as long as each of them does.
func (p *Provider) Close() error {
	p.mu.Lock()
	p.closed = true
	all := p.open
	p.open = nil
	p.mu.Unlock()
	var errs []error
	for _, e := range all {
		errs = append(errs, e.leaf.Close())
	}
	return errors.Join(errs...)
}

// pausing is a Provider of those that can pause.
type pausing struct{ *Provider }

// Pause implements [providers.Pauser].
func (p pausing) Pause(ctx context.Context, ref schemas.Ref) error {
	leaf, _, inner, release, err := p.at(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	pauser, ok := leaf.(providers.Pauser)
	if !ok {
		return schemas.OpErrorf(schemas.Unsupported, "pause", "this provider cannot pause sandboxes")
	}
	return pauser.Pause(ctx, inner)
}
