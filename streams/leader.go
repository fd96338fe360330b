package streams

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
)

// getFromLeader reads one message where it was written first. It costs more than getOne, and what it
// returns is never behind a confirmed write. Code not_found if there is none.
func (b *Bus) getFromLeader(ctx context.Context, stream string, r getRequest) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	r.Batch, r.MaxBytes = 0, 0 // one message is all that a leader gives
	body, err := json.Marshal(r)
	if err != nil {
		return stored{}, coded("read", err)
	}
	m, err := b.bulk.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return stored{}, coded("read from "+stream, err)
	}
	s, err := parseGot(m.Data)
	if hasCode(err, codeStreamNotFound) { // so says a leader that is stopping, too
		return stored{}, schemas.Wrap(schemas.Unavailable, "read from "+stream, "the stream is not there now: try again", err)
	}
	s.stream = stream
	return s, coded("read from "+stream, err)
}

// parseGot reads the answer of a stream's leader.
func parseGot(data []byte) (stored, error) {
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Headers []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	const unknown = "the log's answer is not understood"
	if err := json.Unmarshal(data, &got); err != nil {
		return stored{}, schemas.Wrap(schemas.Internal, "read from the log", unknown, err)
	}
	if got.Error != nil {
		return stored{}, got.Error
	}
	s := stored{subject: got.Message.Subject, seq: got.Message.Seq, time: got.Message.Time, data: got.Message.Data}
	if len(got.Message.Headers) > 0 {
		h, err := nats.DecodeHeadersMsg(got.Message.Headers)
		if err != nil {
			return stored{}, schemas.Wrap(schemas.Internal, "read from the log", unknown, err)
		}
		s.headers, s.id = h, h.Get(nats.MsgIdHdr)
	}
	return s, nil
}

// heard reports whether a stream's leader has heard of a majority a moment ago. One that was cut off from the
// others takes itself for the leader for some seconds more, and what others have stored since is not there: that
// must not be taken for a loss. It is pure.
func heard(cluster *jetstream.ClusterInfo, replicas int) bool {
	const lately = 3 * time.Second      // they report themselves each second
	if cluster == nil || replicas < 2 { // a single copy has nobody to hear of
		return true
	}
	n := 1
	for _, r := range cluster.Replicas {
		if !r.Offline && r.Active < lately {
			n++
		}
	}
	return n > replicas/2
}
