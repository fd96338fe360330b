package records_test

import (
	"encoding/json"
	"testing"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
)

func TestModelsComeInManifestsAndAreFoundByName(t *testing.T) {
	t.Parallel()
	k := open(t, bus(t))
	const mine = manifested
	if _, err := k.Accounts.Ensure(t.Context(), records.Bootstrap{Account: mine, Key: "a-key-for-models-here", Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	manifest := func(model string) schemas.ManifestRequest {
		return schemas.ManifestRequest{Manifest: schemas.Manifest{Version: 1, Project: "p", Resources: []schemas.Resource{
			{Kind: schemas.KindAgent, Name: "writer", Config: json.RawMessage(`{"turns":{"model":"main one","system":"Be brief."}}`)},
			{Kind: schemas.KindModel, Name: "main one", Config: json.RawMessage(model)},
		}}}
	}
	first := manifest(`{"wire":"openai","model":"m","key":"${MODEL_KEY}"}`)
	answer, err := k.Manifests.Apply(t.Context(), mine, first)
	if err != nil || len(answer.Warnings.MissingEnv) != 1 || answer.Warnings.MissingEnv[0] != "MODEL_KEY" {
		t.Fatalf("%+v %v", answer, err)
	}
	if again, err := k.Manifests.Apply(t.Context(), mine, first); err != nil || again.Differs() {
		t.Fatalf("%+v %v", again, err)
	}
	agent, err := k.Agent(t.Context(), mine, "writer")
	if err != nil {
		t.Fatal(err)
	}
	model, err := k.Model(t.Context(), mine, "main one")
	if err != nil || agent.Turns.Model != model.ID || model.Key != "env:MODEL_KEY" {
		t.Fatalf("%+v %+v %v", agent, model, err)
	}
	if _, err := k.ModelKey(t.Context(), model); schemas.CodeOf(err) != schemas.Invalid {
		t.Errorf("without the variable: %v", err)
	}
	if _, err := k.Variables.Set(t.Context(), mine, "MODEL_KEY", "secret"); err != nil {
		t.Fatal(err)
	}
	if key, err := k.ModelKey(t.Context(), model); err != nil || key != "secret" {
		t.Errorf("%q %v", key, err)
	}
	for _, id := range []string{"no such one", "model_none"} {
		if _, err := k.Model(t.Context(), mine, id); schemas.CodeOf(err) != schemas.NotFound {
			t.Errorf("%s: %v", id, err)
		}
		if _, err := k.Agent(t.Context(), mine, id); schemas.CodeOf(err) != schemas.NotFound {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := k.Model(t.Context(), "acct_other", string(model.ID)); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("another account's: %v", err)
	}
	kept, err := k.Manifests.Get(t.Context(), mine, "p")
	if err != nil || len(kept.Resources) != 2 || kept.Resources[0].Kind != schemas.KindModel {
		t.Fatalf("%+v %v", kept, err)
	}
	n, err := k.Accounts.Remove(t.Context(), mine, 0)
	if err != nil || n.Models != 1 || n.Agents != 1 {
		t.Errorf("%+v %v", n, err)
	}
}
