// Package netns sets up the network of a sandbox that can reach only a relay. It uses only the standard library and x/sys, because process
// 1 of a local sandbox runs it.
//
// In such a network every address is local to the sandbox: all connections arrive at sockets that are opened before any of the tenant's
// processes run. There is no other way out: no device, no route, and no process in the sandbox with more access.
package netns

// Resolver is the address of the sandboxes' DNS resolver. Queries to any other address arrive at the same socket.
const Resolver = "198.18.0.1"
