package schemas

import "time"

// ModelID names a model's record: "model_" and 1 to 64 letters or digits.
type ModelID string

// ModelPrefix begins the id of every model.
const ModelPrefix = "model_"

// Validate reports whether id is a well-formed id of a model.
func (id ModelID) Validate() error { return validatePrefixed("model", ModelPrefix, string(id)) }

// Limits of models, and of what agents say of their turns.
const (
	MaxModels         = 100         // models of an account
	MaxModelFallbacks = 8           // models of an agent beside its first
	MaxModelName      = 256         // bytes of the name that a server has for a model
	MaxModelURL       = 1024        // bytes
	MaxModelContext   = 100_000_000 // tokens
	MaxModelOutput    = 10_000_000  // tokens
	MaxModelSeconds   = 3600        // of a request, and of a server's silence
	MaxModelPrice     = 1_000_000   // of a million tokens
	MaxModelExtra     = 16 << 10    // bytes of the JSON of all additional fields of requests
	MaxSystem         = 64 << 10    // bytes of an agent's system text
	MaxTurnSteps      = 1000        // of an agent's turn
	MaxTurnTokens     = 1 << 40     // tokens of a budget
	MaxTurnCost       = 1_000_000   // of a budget, in the currency of the prices
	LeastCompactAt    = 10          // percent of a model's context
	MostCompactAt     = 95          // likewise
	perMillion        = 1_000_000
)

// DefaultAnswerTokens is the longest answer that a model is asked for where neither its record nor the agent says more.
const DefaultAnswerTokens = 4096

// Wires lists the protocols that models are asked by.
func Wires() []Wire { return []Wire{WireAnthropic, WireOpenAI} }

// Model is the record of a model: at which server it is, and what is known of it.
type Model struct {
	ID          ModelID   `json:"id"`
	Account     AccountID `json:"account"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitzero"`
	Manifest    string    `json:"manifest,omitzero"` // what it was applied with; empty: it was made by hand
	Created     time.Time `json:"created"`
	Updated     time.Time `json:"updated,omitzero"`

	ModelConfig
}

// ModelConfig is what a client says of a model. What is zero is at its default.
type ModelConfig struct {
	// Wire is the protocol of its server: anthropic or openai.
	Wire Wire `json:"wire"`
	// URL is the address below which the protocol's paths are: of anthropic without /v1, of openai with it. Default: the service whose
	// protocol it is.
	URL string `json:"url,omitzero"`
	// Model is the name that the server has for it.
	Model string `json:"model"`
	// Key names the variable of the account that holds the server's key, as env:NAME; empty: the server asks for none. The key itself
	// is not taken here.
	Key string `json:"key,omitzero"`
	// Context is how many tokens a request and its answer may have together; 0: it is not known.
	Context int64 `json:"context,omitzero"`
	// MaxOutput is the longest answer that it can give, in tokens; 0: it is not known.
	MaxOutput int64 `json:"maxOutput,omitzero"`
	// Timeout bounds one request, in seconds; default 900.
	Timeout int64 `json:"timeoutSeconds,omitzero"`
	// Silence bounds the wait for the first piece of an answer, and from each to the next, in seconds; default 60.
	Silence int64 `json:"silenceSeconds,omitzero"`
	// Price is what its tokens cost; left out: that is not known, and agents whose budget has a cost cannot use it.
	Price *ModelPrice `json:"price,omitzero"`
	// Extra are additional fields of each request, such as temperature, as the protocol names them.
	Extra map[string]any `json:"extra,omitzero"`
	// LegacyMaxTokens is for servers of the protocol openai that know max_tokens and not max_completion_tokens.
	LegacyMaxTokens bool `json:"legacyMaxTokens,omitzero"`
}

// ModelPrice is what a million tokens of a model cost, in the currency of the account's choice. 0 is free.
type ModelPrice struct {
	In  float64 `json:"in"`
	Out float64 `json:"out"`
	// Cached is for tokens that the server reads from its cache; left out: as In.
	Cached *float64 `json:"cached,omitzero"`
}

// Cost is what a usage costs. Tokens that are written to a cache count as those that are read in.
func (p ModelPrice) Cost(u TokenUsage) float64 {
	cached := p.In
	if p.Cached != nil {
		cached = *p.Cached
	}
	return (float64(u.In+u.CacheWrite)*p.In + float64(u.CacheRead)*cached + float64(u.Out)*p.Out) / perMillion
}

// ModelSpec is what a client says of a model.
type ModelSpec struct {
	Name        string      `json:"name"`
	Description string      `json:"description,omitzero"`
	Config      ModelConfig `json:"config,omitzero"`
}

// ModelDocument is a model as clients see it.
type ModelDocument struct {
	ID          ModelID     `json:"id"`
	Name        string      `json:"name"`
	Description string      `json:"description,omitzero"`
	Config      ModelConfig `json:"config"`
	Manifest    string      `json:"manifest,omitzero"` // what it was applied with
	Created     time.Time   `json:"createdAt"`
	Updated     time.Time   `json:"updatedAt"`
}

// AgentTurns is what an agent wants of its turns. The zero value is that of an agent whose turns a harness outside of Sandjet carries out.
type AgentTurns struct {
	// Model is the model that is asked; empty: none, and AgentTurns is empty.
	Model ModelID `json:"model,omitzero"`
	// Fallback are the models that are asked when the one before is overloaded, at most MaxModelFallbacks.
	Fallback []ModelID `json:"fallback,omitzero"`
	// System is the model's task and rules, before all messages.
	System string `json:"system,omitzero"`
	// MaxSteps is how often a turn asks the model; default 50.
	MaxSteps int `json:"maxSteps,omitzero"`
	// MaxTokens is the longest answer, in tokens; default 4096, or what the model can give where that is less.
	MaxTokens int64 `json:"maxTokens,omitzero"`
	// CompactAt is from which part of a model's context on the beginning is summarised, in percent; default 75.
	CompactAt int        `json:"compactAt,omitzero"`
	Budget    TurnBudget `json:"budget,omitzero"`
}

// TurnBudget is what the turns of an agent may use. What is zero has no limit.
type TurnBudget struct {
	Tokens       int64   `json:"tokens,omitzero"`       // of a turn, read and written
	Cost         float64 `json:"cost,omitzero"`         // of a turn, by the prices of the models
	TokensPerDay int64   `json:"tokensPerDay,omitzero"` // of all turns of the agent in a day of UTC
	CostPerDay   float64 `json:"costPerDay,omitzero"`   // likewise
}

// Models are those that are asked, in order.
func (t AgentTurns) Models() []ModelID {
	if t.Model == "" {
		return nil
	}
	return append([]ModelID{t.Model}, t.Fallback...)
}

// ManifestTurns is [AgentTurns] in a manifest: models are named by their names.
type ManifestTurns struct {
	Model     string     `json:"model,omitzero"`     // its name; empty: a harness outside of Sandjet carries out the turns
	Fallback  []string   `json:"fallback,omitzero"`  // names of models that are asked when the one before is overloaded
	System    string     `json:"system,omitzero"`    // the model's task and rules, before all messages
	MaxSteps  int        `json:"maxSteps,omitzero"`  // how often a turn asks the model; default 50
	MaxTokens int64      `json:"maxTokens,omitzero"` // of one answer; default 4096
	CompactAt int        `json:"compactAt,omitzero"` // percent of a model's context; default 75
	Budget    TurnBudget `json:"budget,omitzero"`
}
