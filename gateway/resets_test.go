package gateway_test

import (
	"encoding/binary"
	"io"
	"testing"
	"testing/synctest"
)

// h2Frame is one frame of HTTP/2.
func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// TestWhoTakesBackRequestsWithoutEndLosesTheConnection: a request that is taken back at once costs its client nothing. Many
// may be, without an end they may not.
//
//guarantee:a-client-that-neither-sends-nor-reads-holds-nothing-for-long
func TestWhoTakesBackRequestsWithoutEndLosesTheConnection(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		const headers, reset, settings = 1, 3, 4
		conn := e.raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		gone := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, conn); close(gone) }()
		write := func(b []byte) error { _, err := conn.Write(b); return err }
		if err := write(h2Frame(settings, 0, 0, nil)); err != nil {
			t.Fatal(err)
		}
		literal := func(name []byte, value string) []byte {
			return append(append(name, byte(len(value))), value...)
		}
		block := []byte{0x83, 0x86} // POST, http
		block = append(block, literal([]byte{0x04}, "/v1/calls")...)
		block = append(block, literal([]byte{0x01}, "gateway")...)
		block = append(block, literal([]byte{0x0f, 0x08}, "Bearer "+aliceKey)...)
		const most = 5000
		for n := range uint32(most) {
			stream := 2*n + 1
			const endOfHeaders, cancel = 4, 8
			err := write(h2Frame(headers, endOfHeaders, stream, block))
			synctest.Wait() // it is in flight
			if err == nil {
				err = write(h2Frame(reset, 0, stream, []byte{0, 0, 0, cancel}))
			}
			synctest.Wait()
			if err != nil {
				if n < 100 {
					t.Errorf("the connection ended after %d requests were taken back", n)
				}
				<-gone
				return
			}
		}
		t.Errorf("%d requests were taken back on one connection", most)
	})
}
