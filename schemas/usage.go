package schemas

import "time"

// Amount is a number of messages and their bytes.
type Amount struct {
	Bytes    int64 `json:"bytes"`
	Messages int64 `json:"messages"`
}

// Usage is what an account keeps on the log, and the most that it may.
type Usage struct {
	Account AccountID `json:"account"`
	// Calls are those of the last day or without an end, with what is large in them.
	Calls Amount `json:"calls"`
	// Events are its conversations and what follows from them, such as deliveries.
	Events Amount `json:"events"`
	// Durable are its durable streams.
	Durable Amount `json:"durable"`
	// Records are its sandboxes, workspaces, agents, models, variables, webhooks, channels and skills, as they are now.
	Records Amount `json:"records"`
	// Counted is when it was counted last. What was written since is added, what was removed since is still in it.
	Counted time.Time `json:"counted,omitzero"`
	// LogLimit is the most bytes of calls and events together. 0: any number.
	LogLimit int64 `json:"log_limit"`
	// DurableLimit is the most bytes of durable streams. 0: any number.
	DurableLimit int64 `json:"durable_limit"`
	// RecordsLimit is the most bytes of records. 0: any number.
	RecordsLimit int64 `json:"records_limit"`
}
