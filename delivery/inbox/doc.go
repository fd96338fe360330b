// Package inbox downloads the files that people send to chats, stores them in workspaces, and then passes the messages on.
//
// Once the chat's service has been answered, a message with files is a delivery of [schemas.InboxChannel]. It waits in a stream, and any
// deliverer can handle it, also after another one has crashed. Files that are already stored are not downloaded again. A file becomes
// visible when it is complete. A file that cannot be downloaded delays its message by a few minutes at most; the message then contains the
// reason.
package inbox
