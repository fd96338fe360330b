// Package chat sends deliveries to chats: each part of a message once, as far as the service of the chat allows to find out.
//
// A [Sender] renders a delivery into parts and keeps a ledger of them on the log. A part is noted as being sent before the request goes out
// and as sent, with the message's id, before the next one begins; a delivery is acknowledged when all its parts are. What is done next is
// decided by a pure function of the ledger and of what was met; see docs/STATES.md. Every change of a ledger is a compare and set. A
// deliverer sends within a bounded time, after which its request neither begins nor counts: of two deliverers, also if one was suspended,
// none sends a part that the other has sent.
package chat
