// Package inbound takes what chat services post: messages, presses of buttons and the requests by which a service checks
// the address.
//
// A request is verified by the channel's own secret over the bytes as they came; what it means is decided by a pure function, see
// [Decide]; and it is answered once all that follows from it is on the log. So a process may die at any moment: the service posts
// again what was not answered, and everything that is put on the log is there once. What can wait (the mark that a message was seen)
// is done beside the answer, and nothing is lost where it is not.
//
// # Files of messages
//
// A message with files is put on the log as a delivery of the channel inbox before the service is answered. A deliverer fetches the
// files, stores them in the channel's workspace by the file plane, and then writes the turn and the event as for a message without files.
// Both say the path of each file, or why it has none.
//
//   - Files are fetched by the deliverer, which reaches chat services anyway and holds their credentials, so a gateway needs no way out.
//     Messages with files have what deliveries have: places, turns of accounts, tries and dead letters.
//   - A file is stored as inbox/<id of the message>/<name>: the id follows from the service's own, so each try finds what an earlier one
//     has stored. A file gets its name once all of it is there; parts wait in .sandjet/uploads under a name of their try, so two tries at
//     the same time do not mix. Names are the last part of what the service says, without control characters, never hidden.
//   - The outcome of the files is decided once: it is part of the record that the message was received (bucket received). The turn and the
//     event say the same, also when a deliverer dies between them.
//   - Three tries in about half a minute, unless the service asks for up to two minutes of rest. Then the message is passed on and says
//     what is missing: a person waits, and a text without its picture is better than none.
//   - Order: a message after a message with files waits for it, ten minutes at most; else the question about a picture
//     would come before the picture. Commands do not wait.
//   - Addresses of files come from messages, so they are not trusted. Files are asked for only at the service's own hosts, over https,
//     also after a redirect, and the credential is sent only to the hosts that need it. Where the operator names another address for a
//     service (--chat-urls), files are asked for there, under the same path.
package inbound
