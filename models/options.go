package models

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// OptionsOf returns the options for the model of a record; key is the value of the key that the record names, and may be empty. It is
// pure: the caller must add a Transport. Code: invalid.
func OptionsOf(c schemas.ModelConfig, key string) (Options, error) {
	silence := time.Duration(c.Silence) * time.Second
	o := Options{
		URL: c.URL, Key: strings.TrimSpace(key), LegacyMaxTokens: c.LegacyMaxTokens, // a key from a file often ends with a line end
		Timeouts: Timeouts{FirstByte: silence, Chunk: silence, Total: time.Duration(c.Timeout) * time.Second},
	}
	for name, value := range c.Extra {
		b, err := json.Marshal(value)
		if err != nil {
			return Options{}, fmt.Errorf("write the field %s of a model's requests: %w", name, err)
		}
		if o.Extra == nil {
			o.Extra = map[string]json.RawMessage{}
		}
		o.Extra[name] = b
	}
	return o, nil
}
