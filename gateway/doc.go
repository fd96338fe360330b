// Package gateway is the edge: it takes tool calls in over HTTP, WebSocket and plain NATS, hands
// them to the log, and hands results and conversations back.
//
// [Gateway] serves HTTP. It keeps nothing that cannot be lost: every answer is read from the log,
// so any number of gateways may run side by side and each may be killed at any time. [Router]
// carries what plain NATS clients publish on sandjet.calls.auto.<account> over to the calls, and
// [FrontDoor] answers requests on sandjet.rpc.call and sandjet.rpc.approvals. All three admit a call
// through package admission, so the same request means the same call at every door.
//
// # Credentials
//
// An HTTP client sends "Authorization: Bearer <key>". A browser cannot set that header on a
// WebSocket, so there the key may come as a subprotocol: offer "sandjet.v1" and
// "sandjet.key.<key>"; the answer selects sandjet.v1 and never repeats the key. A key is never
// taken from the URL, where logs would keep it.
package gateway
