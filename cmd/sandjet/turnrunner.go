package main

import (
	"context"
	"math"
	"net/http"
	"net/netip"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/wires"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools"
	"github.com/sandjet/sandjet/turns"
	"github.com/sandjet/sandjet/turns/runner"
)

// addRunner adds the part that runs the turns of agents that have a model. Model servers must have public addresses, or addresses in these
// networks. A gateway that is added afterwards accepts messages to agents.
func (n *node) addRunner(networks []netip.Prefix) {
	log := n.log.With("part", "turns")
	r := &runner.Runner{
		Bus: n.bus, Endpoints: n.records.Endpoints.List, Log: log,
		Calls: admission.Admitter{Bus: n.bus, Records: n.records, Kind: admission.API, Log: log},
		Minds: minds{n.records, wires.Transport(0, func(a netip.Addr, encrypted bool) error {
			return records.ModelAddress(a, encrypted, networks)
		})},
	}
	n.agentTurns = func(ctx context.Context, a schemas.AccountID, id schemas.AgentID) error {
		_, err := r.Minds.Mind(ctx, a, id)
		return err
	}
	n.add("turns", r.Run)
}

// minds implements [runner.Minds] with the records of agents and models.
type minds struct {
	records   *records.Store
	transport http.RoundTripper
}

// Mind implements [runner.Minds].
func (m minds) Mind(ctx context.Context, a schemas.AccountID, id schemas.AgentID) (runner.Mind, error) {
	agent, err := m.records.Agent(ctx, a, string(id))
	if err != nil {
		return runner.Mind{}, err
	}
	if agent.Turns.Model == "" {
		return runner.Mind{}, schemas.Errorf(schemas.Unsupported, "agent %q has no model: its turns are a harness's",
			schemas.Quotable(agent.Name))
	}
	var list []schemas.Model
	var mind runner.Mind
	for _, id := range agent.Turns.Models() {
		model, err := m.records.Model(ctx, a, string(id))
		if err != nil {
			return runner.Mind{}, err
		}
		key, err := m.records.ModelKey(ctx, model)
		if err != nil {
			return runner.Mind{}, err
		}
		options, err := models.OptionsOf(model.ModelConfig, key)
		if err != nil {
			return runner.Mind{}, err
		}
		options.Transport = m.transport
		client, err := wires.Open(model.Wire, options)
		if err != nil {
			return runner.Mind{}, err
		}
		list, mind.Clients = append(list, model), append(mind.Clients, client)
	}
	if mind.Config, err = configOf(agent.Turns, list); err != nil {
		return runner.Mind{}, err
	}
	visible, err := m.records.Documents.ToolVisibility(ctx, a, id)
	if err != nil {
		return runner.Mind{}, err
	}
	definitions, err := tools.Visible("", visible)
	if err != nil {
		return runner.Mind{}, err
	}
	mind.Tools = map[string]schemas.Tool{}
	for _, d := range definitions {
		mind.Tools[string(d.Name)] = d.Name
		mind.Config.Tools = append(mind.Config.Tools, models.Tool{Name: string(d.Name), Description: d.Description, Schema: d.InputSchema})
	}
	return mind, nil
}

// configOf returns the configuration of an agent's turns. A budget of money is converted to tokens at the highest price of its models, so
// that it is never exceeded. Code invalid: a budget for a day.
func configOf(t schemas.AgentTurns, list []schemas.Model) (turns.Config, error) {
	if t.Budget.TokensPerDay > 0 || t.Budget.CostPerDay > 0 {
		return turns.Config{}, schemas.Errorf(schemas.Invalid, "the agent has a budget for a day, which is not counted yet: give it one for a turn")
	}
	c := turns.Config{System: t.System, MaxSteps: t.MaxSteps, MaxTokens: t.MaxTokens, Budget: t.Budget.Tokens, CompactAt: t.CompactAt}
	if c.MaxTokens == 0 {
		c.MaxTokens = schemas.DefaultAnswerTokens
	}
	dearest := 0.0
	for _, m := range list {
		c.Models = append(c.Models, turns.Model{Name: m.Model, Context: m.Context})
		if m.MaxOutput > 0 {
			c.MaxTokens = min(c.MaxTokens, m.MaxOutput)
		}
		if p := m.Price; p != nil {
			dearest = max(dearest, p.In, p.Out)
			if p.Cached != nil {
				dearest = max(dearest, *p.Cached)
			}
		}
	}
	if t.Budget.Cost > 0 && dearest > 0 {
		const perPrice = 1_000_000 // number of tokens that a price is for
		tokens := int64(math.Min(t.Budget.Cost/dearest*perPrice, schemas.MaxTurnTokens))
		if c.Budget == 0 || tokens < c.Budget {
			c.Budget = max(tokens, 1)
		}
	}
	return c, nil
}
