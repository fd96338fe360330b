// Package gateway serves the HTTP API: it accepts tool calls, writes them to the log, and answers with results and conversations.
//
// [Gateway] keeps nothing that cannot be lost: every answer is read from the log, so any number of gateways may run side by side and
// each may be killed at any time. Package live serves WebSockets and event streams, package natsapi clients of plain NATS. All admit calls
// through package admission, so the same request means the same call whichever way it comes.
//
// # Credentials
//
// An HTTP client sends "Authorization: Bearer <key>". A browser cannot set that header on a
// WebSocket, so there the key may come as a subprotocol: offer "sandjet.v1" and
// "sandjet.key.<key>"; the answer selects sandjet.v1 and never repeats the key. A key is never
// taken from the URL, where logs would keep it.
package gateway
