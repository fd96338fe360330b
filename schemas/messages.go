package schemas

import "encoding/json"

// Role says who speaks in a [ModelMessage].
type Role string

// The roles. Results of tools are blocks of a message of the user, as both wires of models have it in common.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// BlockType says what a [Block] is, and so which of its fields have a meaning.
type BlockType string

// The types of blocks.
const (
	BlockText       BlockType = "text"        // Text
	BlockImage      BlockType = "image"       // MediaType, and Data or URL
	BlockThinking   BlockType = "thinking"    // Text, as far as the model shows it
	BlockToolUse    BlockType = "tool_use"    // Use, Name, Input
	BlockToolResult BlockType = "tool_result" // Use, Text, IsError
	BlockOther      BlockType = "other"       // Raw alone: what this version has no word for
)

// Wire names the protocol that a model's server speaks.
type Wire string

// The wires.
const (
	WireAnthropic Wire = "anthropic" // Anthropic's Messages API: POST /v1/messages
	WireOpenAI    Wire = "openai"    // OpenAI's Chat Completions API: POST /chat/completions
)

// ModelMessage is what one side of a conversation with a model says at one time.
type ModelMessage struct {
	Role   Role    `json:"role"`
	Blocks []Block `json:"blocks"`
}

// Block is a piece of a message. Which fields are set, [BlockType] says.
type Block struct {
	Type BlockType `json:"type"`
	Text string    `json:"text,omitzero"`
	// Use is the id that the model gave a use of a tool; its result repeats it.
	Use string `json:"use,omitzero"`
	// Name is the tool's.
	Name string `json:"name,omitzero"`
	// Input is the JSON object that the model wrote for the tool. A model can write what is no JSON: then Input is a JSON string with
	// what it wrote.
	Input   json.RawMessage `json:"input,omitzero"`
	IsError bool            `json:"is_error,omitzero"`
	// MediaType, and Data or URL, are an image's.
	MediaType string `json:"media_type,omitzero"`
	Data      []byte `json:"data,omitzero"`
	URL       string `json:"url,omitzero"`
	// Raw is the block as the model's server sent it. It is sent byte for byte to the same Wire and Model, which may have signed it; for any
	// other, the block is written from the fields above, and thinking and other blocks are left out.
	Raw   json.RawMessage `json:"raw,omitzero"`
	Wire  Wire            `json:"wire,omitzero"`
	Model string          `json:"model,omitzero"`
}

// TokenUsage counts the tokens of one or more requests to a model, as its server does. The input is In + CacheRead + CacheWrite.
type TokenUsage struct {
	In         int64 `json:"in"`
	CacheRead  int64 `json:"cache_read,omitzero"`
	CacheWrite int64 `json:"cache_write,omitzero"`
	Out        int64 `json:"out"`
}

// Add returns the sum.
func (u TokenUsage) Add(v TokenUsage) TokenUsage {
	return TokenUsage{In: u.In + v.In, CacheRead: u.CacheRead + v.CacheRead, CacheWrite: u.CacheWrite + v.CacheWrite, Out: u.Out + v.Out}
}
