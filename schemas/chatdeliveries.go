package schemas

// DeliverySentData is the data of [DeliverySent].
type DeliverySentData struct {
	Delivery DeliveryID `json:"delivery"`
	Event    string     `json:"event"`   // what was delivered
	Channel  string     `json:"channel"` // its kind
	// ChannelID is the channel's record.
	ChannelID ChannelID `json:"channel_id"`
	// Messages are what the chat has, in their order.
	Messages []SentMessage `json:"messages"`
}

// SentMessage is a message in a chat.
type SentMessage struct {
	ID  string `json:"id,omitzero"`  // as the service names it; empty: it is not known to have arrived
	URL string `json:"url,omitzero"` // where a person sees it
	// Repeat: it says of itself that it may be one.
	Repeat bool `json:"repeat,omitzero"`
	// Edited: it was there before and says something else now.
	Edited bool `json:"edited,omitzero"`
}

// DeliveryFailedData is the data of [DeliveryFailed].
type DeliveryFailedData struct {
	Delivery  DeliveryID `json:"delivery"`
	Event     string     `json:"event"`               // what was to be delivered
	Channel   string     `json:"channel"`             // its kind
	ChannelID ChannelID  `json:"channel_id,omitzero"` // empty: none was found
	Reason    string     `json:"reason"`              // for people
	// Messages are those that had arrived.
	Messages []SentMessage `json:"messages,omitzero"`
	// Fallback is the channel by which it goes now. Empty: none, it is a dead letter.
	Fallback ChannelID `json:"fallback,omitzero"`
}
