// Package chat sends deliveries to chats. It sends each part of a message once, as far as the chat's service makes it possible to find out
// whether a part arrived.
//
// A [Sender] renders a delivery into parts and stores a ledger of them in a bucket. The ledger says that a part is being sent before its
// request is sent, and that it was sent, with the message's id, before the next part begins. A delivery is acknowledged when all its parts
// are decided. The next action is determined by a function without side effects, from the ledger and the latest event; see docs/STATES.md.
// Every change of a ledger is a compare-and-set. A deliverer sends only within a time limit that it has stored: after it, the request is
// neither started nor counted. Therefore one deliverer does not send a part that another has sent, even if one was suspended.
package chat
