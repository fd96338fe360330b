package records

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func TestWhatIsWrongWithAModelIsSaidWithItsField(t *testing.T) {
	good := schemas.ModelConfig{Wire: schemas.WireOpenAI, Model: "qwen3:8b", URL: "http://localhost:11434/v1", Key: "env:KEY",
		Context: 32768, MaxOutput: 8192, Timeout: 60, Silence: 30, Price: &schemas.ModelPrice{In: 1, Out: 2}}
	if err := CheckModel(good); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*schemas.ModelConfig){
		"config.wire":           func(c *schemas.ModelConfig) { c.Wire = "antropic" },
		"config.model":          func(c *schemas.ModelConfig) { c.Model = "" },
		"config.url":            func(c *schemas.ModelConfig) { c.URL = "https://u:p@a.example" },
		"config.key":            func(c *schemas.ModelConfig) { c.Key = "sk-plain-key" },
		"config.context":        func(c *schemas.ModelConfig) { c.Context = -1 },
		"config.maxOutput":      func(c *schemas.ModelConfig) { c.MaxOutput = c.Context },
		"config.timeoutSeconds": func(c *schemas.ModelConfig) { c.Timeout = 3601 },
		"config.silenceSeconds": func(c *schemas.ModelConfig) { c.Silence = -1 },
		"config.price.cached":   func(c *schemas.ModelConfig) { c.Price = &schemas.ModelPrice{Cached: new(-1.0)} },
		"config.extra": func(c *schemas.ModelConfig) {
			c.Extra = map[string]any{"a": strings.Repeat("x", schemas.MaxModelExtra)}
		},
		"config.legacyMaxTokens": func(c *schemas.ModelConfig) { c.Wire, c.LegacyMaxTokens = schemas.WireAnthropic, true },
	} {
		c := good
		change(&c)
		e := schemas.Public(CheckModel(c))
		if e == nil || e.Code != schemas.Invalid || e.Field != field || strings.Contains(e.Message, "sk-plain-key") {
			t.Errorf("%s: %+v", field, e)
		}
	}
	for _, url := range []string{"ftp://a.example", "http://8.8.8.8/v1", "https://", "https://a.example?key=1", "::"} {
		c := good
		c.URL = url
		if e := schemas.Public(CheckModel(c)); e == nil || e.Field != "config.url" {
			t.Errorf("%s: %v", url, e)
		}
	}
}

func TestTheOperatorOpensNetworksToModels(t *testing.T) {
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, c := range []struct {
		url          string
		closed, open bool // it is denied
	}{
		{"", false, false}, {"https://api.example.com", false, false}, {"http://localhost:11434/v1", true, false},
		{"http://127.0.0.1:11434", true, false}, {"http://[::ffff:127.0.0.1]:1", true, false}, {"http://10.1.2.3", true, true},
		{"http://169.254.169.254/latest", true, true}, {"http://[::1]:1", true, true}, {"http://0x7f.1", true, false},
	} {
		for _, o := range []struct {
			networks []netip.Prefix
			denied   bool
		}{{nil, c.closed}, {here, c.open}} {
			err := Operator{ModelNetworks: o.networks}.checkModel(schemas.ModelConfig{URL: c.url})
			if (err != nil) != o.denied || err != nil && (schemas.CodeOf(err) != schemas.Denied || schemas.Public(err).Field != "config.url") {
				t.Errorf("%q with %v: %v", c.url, o.networks, err)
			}
		}
	}
	every := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for text, want := range map[string][2]bool{ // in the clear, encrypted
		"8.8.8.8": {false, true}, "10.0.0.1": {true, true}, "169.254.169.254": {false, false}, "fd00:ec2::254": {false, false},
	} {
		for i, encrypted := range []bool{false, true} {
			if err := ModelAddress(netip.MustParseAddr(text), encrypted, every); (err == nil) != want[i] {
				t.Errorf("%s, encrypted %v: %v", text, encrypted, err)
			}
		}
	}
}

func TestWhatIsWrongWithTurnsIsSaidWithItsField(t *testing.T) {
	one, two := schemas.ModelID("model_one"), schemas.ModelID("model_two")
	good := schemas.AgentTurns{Model: one, Fallback: []schemas.ModelID{two}, System: "Be brief.", MaxSteps: 9, MaxTokens: 1000, CompactAt: 50,
		Budget: schemas.TurnBudget{Tokens: 1, Cost: 0.5, TokensPerDay: 2, CostPerDay: 3}}
	if err := checkTurns(good); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*schemas.AgentTurns){
		"model":               func(c *schemas.AgentTurns) { c.Model, c.Fallback = "", nil },
		"fallback[0]":         func(c *schemas.AgentTurns) { c.Fallback[0] = one },
		"fallback":            func(c *schemas.AgentTurns) { c.Fallback = make([]schemas.ModelID, 9) },
		"system":              func(c *schemas.AgentTurns) { c.System = strings.Repeat("x", schemas.MaxSystem+1) },
		"maxSteps":            func(c *schemas.AgentTurns) { c.MaxSteps = 1001 },
		"maxTokens":           func(c *schemas.AgentTurns) { c.MaxTokens = -1 },
		"compactAt":           func(c *schemas.AgentTurns) { c.CompactAt = 99 },
		"budget.tokens":       func(c *schemas.AgentTurns) { c.Budget.Tokens = -1 },
		"budget.tokensPerDay": func(c *schemas.AgentTurns) { c.Budget.TokensPerDay = -1 },
		"budget.cost":         func(c *schemas.AgentTurns) { c.Budget.Cost = -1 },
		"budget.costPerDay":   func(c *schemas.AgentTurns) { c.Budget.CostPerDay = 1e9 },
	} {
		c := good
		c.Fallback = []schemas.ModelID{two}
		change(&c)
		if e := schemas.Public(checkTurns(c)); e == nil || e.Code != schemas.Invalid || e.Field != "config.turns."+field {
			t.Errorf("%s: %+v", field, e)
		}
	}
}

func TestMoneyIsCountedOnlyWithPrices(t *testing.T) {
	price := &schemas.ModelPrice{In: 3, Out: 15, Cached: new(0.3)}
	if got := price.Cost(schemas.TokenUsage{In: 1e6, CacheWrite: 1e6, CacheRead: 1e6, Out: 1e6}); got != 21.3 {
		t.Error(got)
	}
	model := schemas.Model{ID: "model_one", Name: "one", ModelConfig: schemas.ModelConfig{Wire: schemas.WireOpenAI, Model: "m", Price: price}}
	agent := schemas.Agent{ID: "agent_one", Name: "g", AgentConfig: schemas.AgentConfig{
		Turns: schemas.AgentTurns{Model: "model_one", Budget: schemas.TurnBudget{Cost: 1}}}}
	var p tenant
	if err := p.checkModels(agent); schemas.CodeOf(err) != schemas.Invalid || schemas.Public(err).Field != "config.turns.model" {
		t.Error(err)
	}
	p.put(record{Model: &model}, stand{})
	p.put(record{Agent: &agent}, stand{})
	if err := p.checkModels(agent); err != nil {
		t.Error(err)
	}
	free := model
	free.Price = nil
	if err := p.checkModelUsers(free); schemas.CodeOf(err) != schemas.Conflict {
		t.Error(err)
	}
	p.put(record{Model: &free}, stand{})
	if err := p.checkModels(agent); schemas.CodeOf(err) != schemas.Invalid {
		t.Error(err)
	}
}
