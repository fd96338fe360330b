// Package egress is the only way out of a sandbox that may reach a part of the network. It decides by the network of the sandbox's record
// ([Rules]), answers the sandbox's questions for names without asking a server ([Relay]), and carries the connections that are allowed,
// each to an address that it has resolved and checked itself. It knows no backend: a provider gives it the sockets that a sandbox's
// connections arrive at.
//
// A name is decided on when it is asked for: it gets an address of 198.18.0.0/15 that only this sandbox knows, and a connection to that
// address is a connection to that name. What the name really resolves to is looked up when the connection is made, all of its
// addresses are checked, and one of the checked ones is dialled. So neither a name that resolves differently the
// second time nor a program that ignores proxy variables gets around a rule.
//
// # Passes
//
// "sandjet egress serve" is the relay of providers/egress as an HTTP proxy (CONNECT and plain HTTP) for many sandboxes, a Deployment in a
// namespace of its own. The policy of a sandbox that lists domains lets it reach these pods on one port, its allowCidrs, and nothing
// else: no DNS either. Each command has the proxy in its variables, with a pass as the password: the pod's UID and addresses, the
// sandbox's network and a time, signed with Ed25519 by a key that workers derive from the ring of secrets.
//
//   - The proxy has the public key. It needs no other service: no rights in the cluster, no token of a service account, no secrets, no
//     state. Any replica serves any connection, and a new one is as good as the one before.
//   - A pass is good for connections from the pod's addresses only. A copy is worth nothing to another pod; and an address that
//     another pod has later is worth nothing without the pass, which only the first one had.
//   - A pass is good for 25 hours in a kept sandbox, and for the time of the call in one of its own. Connections end with the pass that
//     they began with, also after the proxy was suspended: it reads its clock when it continues. Every request on a connection must show
//     the same pass.
//   - The proxy decides, resolves, checks all addresses and the server's name, and keeps private networks closed as the relay does
//     elsewhere. Each sandbox has a relay and limits of its own; 64 connections from one address may be without a pass.
//   - Without a proxy, a sandbox that lists domains is refused, with the remedy; so it is where the service has no address, no
//     selector or another port.
package egress
