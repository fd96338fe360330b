// Package modaltest is a service that answers as Modal does, for tests and for trying things out without an account: the control plane
// and the routers of sandboxes, on one address, in the vendor's own protocol (gRPC, without TLS).
//
// It keeps state as the service does: ids, tokens that end, names that are given once among the sandboxes that run, lists that may lag
// behind, quota, images that are built first, volumes, sandboxes that end at the end of their time or when they are unused. Commands are
// real processes, each sandbox's in namespaces of their own (bubblewrap), so that a provider can be held to all that it promises. A process
// is started once under its id; its input says where in all of it it belongs; its outputs are read from any byte on.
//
// A volume is a folder here: what is written is there for all at once, where the service wants "sync" first. Both that and reloads are
// counted.
//
// The service's own clients for Go and for JavaScript are run against it (package modal).
package modaltest
