// Package chat sends deliveries to chats: each part of a message once, as far as the service of the chat lets anybody know.
//
// A [Sender] renders a delivery into parts and keeps a ledger of them on the log. A part is noted as being sent before the request
// goes out and as sent, with the message's id, before the next one begins; a delivery is acknowledged when all its parts are. What is
// done next is decided by a pure function of the ledger and of what was met; see docs/STATES.md. Every change of a ledger is made on
// the condition that nobody else has changed it, and whoever sends has a time for it, after which it neither begins nor counts any
// more: two deliverers, or one that stood still, do not send what the other has.
package chat
