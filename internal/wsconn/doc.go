// Package wsconn is the server's end of WebSocket connections (RFC 6455), made for very many of them that are idle most of
// the time.
//
// An idle connection is one goroutine that waits for a byte with next to nothing on its stack. Buffers, compressors and the goroutine that
// writes exist only while there is something to do. Nothing is queued for a client: a sender calls [Conn.Wake], and is asked for it by
// [Handler.Gather] when the client can take it; many messages go out in one write.
//
// Messages may be compressed (permessage-deflate, RFC 7692), each by itself: no window is kept between two messages.
// The opening handshake is the library's (github.com/gorilla/websocket), frames are read and written here.
// What the package does for each kind of right and wrong input is stated by the cases of its tests, which follow
// the sections of the Autobahn test suite.
package wsconn
