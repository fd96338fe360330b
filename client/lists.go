package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandjet/sandjet/schemas"
)

// CallsQuery selects calls for [Client.Calls].
type CallsQuery struct {
	ID           schemas.CallID         // only this one, alone in the query; empty: all
	Conversation schemas.ConversationID // empty: of all
	Limit        int                    // at most 100; 0: 50
	Before       schemas.CallID         // only older ones than this call; empty: from the newest on
}

// Calls returns the account's calls of the last 24 hours, the newest first. Next is the value of Before for the next page; it is empty
// after the last page. With a conversation, a page may have fewer calls than Limit, or none, although there is a next one. Codes: invalid,
// not_found (Before does not exist any more).
func (c *Client) Calls(ctx context.Context, q CallsQuery) (calls []schemas.CallSummary, next schemas.CallID, err error) {
	values := pageValues(q.Limit, q.Before)
	if q.ID != "" {
		values.Set("id", string(q.ID))
	}
	if q.Conversation != "" {
		values.Set("conversation", string(q.Conversation))
	}
	var out struct {
		Calls []schemas.CallSummary `json:"calls"`
		Next  schemas.CallID        `json:"next"`
	}
	err = c.transport().keepAsking(ctx, http.MethodGet, withQuery("/v1/calls", values), nil, &out)
	return out.Calls, out.Next, err
}

// Conversations returns the account's conversations that had calls within 24 hours, the one with the newest call first: at most limit (0:
// 50; at most 100) of those with calls older than before (empty: all). Next is as for [Client.Calls]. A conversation with calls on two
// pages is on both.
func (c *Client) Conversations(ctx context.Context, limit int,
	before schemas.CallID) (list []schemas.ConversationSummary, next schemas.CallID, err error) {
	var out struct {
		Conversations []schemas.ConversationSummary `json:"conversations"`
		Next          schemas.CallID                `json:"next"`
	}
	err = c.transport().keepAsking(ctx, http.MethodGet, withQuery("/v1/conversations", pageValues(limit, before)), nil, &out)
	return out.Conversations, out.Next, err
}

func pageValues(limit int, before schemas.CallID) url.Values {
	values := url.Values{}
	if limit != 0 {
		values.Set("limit", strconv.Itoa(limit))
	}
	if before != "" {
		values.Set("before", string(before))
	}
	return values
}
