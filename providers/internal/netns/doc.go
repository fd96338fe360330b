// Package netns makes the network of a sandbox that has one way out. It stands on the standard library alone, because process 1 of a
// local box uses it.
//
// Every address is the sandbox's own in such a network: whatever it connects to arrives at sockets that are opened before anything of a
// tenant runs. There is no other way out: no device, no route, no process of the sandbox that knows more.
package netns

// Resolver is the address at which sandboxes ask for names. Any other leads to the same place.
const Resolver = "198.18.0.1"
