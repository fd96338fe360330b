// Package mcp is a server of the Model Context Protocol: clients such as editors and agent programs call Sandjet's tools by it.
//
// [Server] speaks revisions 2026-07-28, 2025-11-25 and older ones, over HTTP ([Server.Handler]) and over a pair of streams
// ([Server.RunStdio]). It keeps nothing that cannot be lost: a call is on the log before it is answered, and any other process can answer
// for it by its id. Calls are carried out by a [Caller]: in the gateway that is the gateway itself, in a process
// beside a client program it is a client of a gateway.
//
// # Which call a request means
//
// A client that marks a tool use, in _meta by "sandjet/idempotencyKey" or "claudecode/toolUseId", gets the same call for the same mark,
// agent, conversation and workspace, however often it asks and whichever process answers; see [CallIDOf]. Without a mark each request is a
// call.
//
// # What is waited for
//
// A request is held for [Options.Wait]. A call that is not done by then continues: the client gets a task if it knows tasks, else an answer
// that says so and names the call for async_status.
//
// The protocol's contract is the specification of modelcontextprotocol.io, revision 2026-07-28, and its extension
// io.modelcontextprotocol/tasks.
//
// # Identity of a call
//
// Package mcp translates, over the official SDK, and keeps nothing. Calls are carried out by a Caller: at /mcp by the gateway, in
// sandjet mcp by a client of a gateway.
//
//   - The id of a call is made from its mark: _meta["sandjet/idempotencyKey"], or _meta["claudecode/toolUseId"] where that client sends it,
//     hashed with account, agent, workspace and conversation. Asked again, by whichever process, it is the same call; with other arguments
//     a conflict. Without a mark each request is a call.
//   - A request is held for 25 s, 45 s on streams, then the call continues: as a task (io.modelcontextprotocol/tasks) for clients that know
//     them, else with a text that names it for async_status, which is answered here for calls and waits for them. An agent without jobs is
//     shown async_status for that.
//   - A task is a call: its id is the call's, so it is on the log before the client learns of it, any gateway answers for it, and it has
//     one result. A call in the background still answers at once: its model wants to continue. Its job can be asked about as a task by its
//     status id.
//   - Cancelling: notifications/cancelled at once. A closed stream of the newest revision at once without a mark, with one after 10 s,
//     unless it is asked for again at the same gateway. A stream of an older revision, or a process that has gone, cancels nothing.
//   - Older clients get a session id, by which their cancellations find their requests at the gateway that holds them. Nothing else is
//     kept under it.
//   - Questions go to the client's user, where the client has forms, and what it carries between question and answer is sealed
//     (account, call, digest, ten minutes) with the keys of attach tokens; the approval's record decides once. Elsewhere the text says
//     how to answer.
//   - Errors: what is wrong with arguments is an answer for the model (isError), as the protocol advises; what concerns the request is
//     a JSON-RPC error with Sandjet's code in its data. A command that fails is no error: its exit code is in the answer.
//   - Clients show the account's key as a bearer token. The metadata document names no server of tokens, because there is none.
package mcp
