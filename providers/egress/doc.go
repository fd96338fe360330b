// Package egress is the only way out of a sandbox that may reach a part of the network. It decides by the network of
// the sandbox's record ([Rules]), answers the sandbox's questions for names without asking anybody ([Relay]), and carries the connections
// that are allowed, each to an address that it has resolved and checked itself. It knows no backend: a provider
// gives it the sockets that a sandbox's connections arrive at.
//
// A name is decided on when it is asked for: it gets an address of 198.18.0.0/15 that only this sandbox knows, and a connection to that
// address is a connection to that name. What the name really resolves to is looked up when the connection is made, all of its
// addresses are checked, and one of the checked ones is dialled. So neither a name that resolves differently the
// second time nor a program that ignores proxy variables gets around a rule.
package egress
