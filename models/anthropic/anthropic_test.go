package anthropic_test

import (
	"testing"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/anthropic"
	"github.com/sandjet/sandjet/models/modeltest"
	"github.com/sandjet/sandjet/schemas"
)

func TestClient(t *testing.T) {
	modeltest.Run(t, modeltest.Client{
		Wire: schemas.WireAnthropic, MaxTokens: "max_tokens", Busy: "overloaded_error",
		Other: `{"type":"new_thing","data":{"a":[1,2.50],"b":"<&>"}}`,
		New:   func(o models.Options) (models.Client, error) { return anthropic.New(o) },
	})
}
