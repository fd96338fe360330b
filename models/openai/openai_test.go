package openai_test

import (
	"testing"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/modeltest"
	"github.com/sandjet/sandjet/models/openai"
	"github.com/sandjet/sandjet/schemas"
)

func TestClient(t *testing.T) {
	modeltest.Run(t, modeltest.Client{
		Wire: schemas.WireOpenAI, Base: "/v1", MaxTokens: "length", Busy: "server_error",
		Other: `{"new_thing":{"a":[1,2.50],"b":"<&>"}}`,
		New:   func(o models.Options) (models.Client, error) { return openai.New(o) },
	})
}
