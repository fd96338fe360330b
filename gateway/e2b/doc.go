// Package e2b answers the clients of E2B (npm: e2b, @e2b/code-interpreter): a sandbox is a session with an end of its own, a command is a
// call on the log, or a background job where it has a standard input or no time limit within that of calls. Code is a call that asks a
// kernel, which is a background job. What it cannot do is answered 501, with a sentence.
//
// The wire is that of the client: JSON for the control plane, Connect's JSON for what is in a sandbox
// (https://connectrpc.com/docs/protocol), bodies of files as they are. Methods lists what of it is served.
package e2b
