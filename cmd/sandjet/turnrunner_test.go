package main

import (
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func TestBudgetsOfAgents(t *testing.T) {
	t.Parallel()
	cached := 30.0
	priced := []schemas.Model{
		{ModelConfig: schemas.ModelConfig{Model: "big", Context: 1000, MaxOutput: 500, Price: &schemas.ModelPrice{In: 2, Out: 10}}},
		{ModelConfig: schemas.ModelConfig{Model: "small", Price: &schemas.ModelPrice{In: 1, Out: 5, Cached: &cached}}},
	}
	for name, c := range map[string]struct {
		budget schemas.TurnBudget
		list   []schemas.Model
		want   int64
	}{
		"none":              {schemas.TurnBudget{}, priced, 0},
		"tokens":            {schemas.TurnBudget{Tokens: 700}, priced, 700},
		"money":             {schemas.TurnBudget{Cost: 0.3}, priced[:1], 30_000},
		"money, two models": {schemas.TurnBudget{Cost: 0.3}, priced, 10_000},
		"both, money first": {schemas.TurnBudget{Cost: 0.3, Tokens: 50_000}, priced, 10_000},
		"both, tokens":      {schemas.TurnBudget{Cost: 0.3, Tokens: 5000}, priced, 5000},
		"less than a token": {schemas.TurnBudget{Cost: 0.000_001}, priced, 1},
	} {
		got, err := configOf(schemas.AgentTurns{Budget: c.budget}, c.list)
		if err != nil || got.Budget != c.want || got.MaxTokens != 500 || len(got.Models) != len(c.list) {
			t.Errorf("%s: %+v, %v; want a budget of %d", name, got, err, c.want)
		}
	}
	for _, b := range []schemas.TurnBudget{{TokensPerDay: 1}, {CostPerDay: 1}} {
		if _, err := configOf(schemas.AgentTurns{Budget: b}, priced); schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("%+v: %v", b, err)
		}
	}
}
