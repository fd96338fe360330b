// Package mcp is a server of the Model Context Protocol: clients such as editors and agent programs call Sandjet's tools by it.
//
// [Server] speaks revisions 2026-07-28, 2025-11-25 and older ones, over HTTP ([Server.Handler]) and over a pair of streams
// ([Server.RunStdio]). It keeps nothing that cannot be lost: a call is on the log before it is answered, its id says which it is, and
// any other process answers for it. Whoever runs the calls is a [Caller]: in the gateway that is the gateway itself, in a process
// beside a client program it is a client of a gateway.
//
// # Which call a request means
//
// A client that marks a tool use, in _meta by "sandjet/idempotencyKey" or "claudecode/toolUseId", gets the same call for the same mark,
// agent, conversation and workspace, however often it asks and whoever answers; see [CallIDOf]. Without a mark each request is a call.
//
// # What is waited for
//
// A request is held for [Options.Wait]. What is not done by then goes on: the client gets a task if it knows tasks, else an answer that
// says so and names the call for async_status.
//
// The protocol's contract is the specification of modelcontextprotocol.io, revision 2026-07-28, and its extension
// io.modelcontextprotocol/tasks.
package mcp
