package replaytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	pollAgain  = 20 * time.Millisecond // after a failure
	mostAnswer = 64 << 20              // bytes
)

// Poller follows conversations by long polls, like a client that only speaks HTTP.
type Poller struct {
	Base, Key string
	Limit     int           // maximum number of events of a page
	Wait      time.Duration // of one poll; 0: the gateway answers at once, and the client polls without a pause
	HTTP      *http.Client
}

// page is the part of an answer that is used.
type page struct {
	Events []struct {
		Cursor schemas.Cursor  `json:"cursor"`
		Event  json.RawMessage `json:"event"`
	} `json:"events"`
	Next      schemas.Cursor  `json:"next"`
	UpToDate  bool            `json:"up_to_date"`
	Recovered bool            `json:"recovered"`
	Gap       json.RawMessage `json:"gap"`
}

// Follow implements [Follow].
func (p Poller) Follow(ctx context.Context, c schemas.ConversationID, after schemas.Cursor) iter.Seq2[client.Item, error] {
	return func(yield func(client.Item, error) bool) {
		for live := false; ; {
			got, passing, err := p.ask(ctx, c, after)
			if err != nil && passing && wait.Sleep(ctx, pollAgain) {
				continue
			}
			if err != nil {
				yield(client.Item{}, err)
				return
			}
			if !got.Recovered && !yield(client.Item{Gap: got.Gap, Cursor: got.Next}, nil) {
				return
			}
			for _, e := range got.Events {
				event, err := schemas.DecodeEvent(e.Event)
				if err != nil {
					yield(client.Item{}, fmt.Errorf("the page's event cannot be read: %w", err))
					return
				}
				if !yield(client.Item{Event: event, Cursor: e.Cursor}, nil) {
					return
				}
			}
			if after = got.Next; got.UpToDate && !live {
				if live = true; !yield(client.Item{Live: true, Cursor: after}, nil) {
					return
				}
			}
		}
	}
}

// ask fetches one page. passing reports that the failure is temporary.
func (p Poller) ask(ctx context.Context, c schemas.ConversationID, after schemas.Cursor) (got page, passing bool, _ error) {
	q := url.Values{"after": {after.String()}, "limit": {strconv.Itoa(p.Limit)}, "wait": {p.Wait.String()}}
	path := p.Base + "/v1/conversations/" + url.PathEscape(string(c)) + "/events?" + q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return page{}, false, fmt.Errorf("request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+p.Key)
	resp, err := p.HTTP.Do(req)
	if err != nil {
		return page{}, true, fmt.Errorf("ask: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	switch {
	case err != nil:
		return page{}, true, fmt.Errorf("read the page: %w", err)
	case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusTooManyRequests:
		return page{}, true, fmt.Errorf("%d: %s: %w", resp.StatusCode, body, schemas.ErrUnavailable)
	case resp.StatusCode != http.StatusOK:
		return page{}, false, fmt.Errorf("%d: %s: %w", resp.StatusCode, body, errors.ErrUnsupported)
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return page{}, false, fmt.Errorf("the page cannot be read: %w", err)
	}
	return got, false, nil
}
