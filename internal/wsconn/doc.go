// Package wsconn is the server's end of WebSocket connections (RFC 6455), for very many connections that are mostly idle.
//
// An idle connection is one goroutine that waits for a byte with almost nothing on its stack. Buffers, compressors and a writing goroutine
// exist only while there is something to do. Messages are not queued: a sender calls [Conn.Wake], and [Handler.Gather] is called for the
// messages when the client can receive them. Many messages go out in one write.
//
// Messages may be compressed (permessage-deflate, RFC 7692), each separately: no window is kept between two messages. The opening
// handshake is that of a library (github.com/gorilla/websocket), frames are read and written here. The tests define the behavior for each
// kind of valid and invalid input; they follow the sections of the Autobahn test suite.
package wsconn
