package client

import (
	"encoding/json"

	"github.com/sandjet/sandjet/schemas"
)

// HearFrame gives a frame to a socket that follows the conversation c, as if it had come.
func HearFrame(b []byte) {
	s := New("http://gateway.test", "").Socket()
	f, err := s.follower("c", schemas.Cursor{}, true)
	if err != nil {
		panic(err)
	}
	f.request, f.answered = 1, true
	var w wsFrame
	if json.Unmarshal(b, &w) == nil {
		s.dispatch(w)
		s.dispatch(w)
	}
}
