package records

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/sandjet/sandjet/schemas"
)

// merge changes the JSON object target by patch, as RFC 7396 says: an object is merged member by member,
// null removes, anything else replaces. Both may be nil. Numbers stay as they are written.
func merge(target, patch []byte) ([]byte, error) {
	t, err := object(target)
	if err != nil {
		return nil, err
	}
	p, err := object(patch)
	if err != nil {
		return nil, err
	}
	b, err := schemas.EncodeJSON(merged(t, p))
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	return b, nil
}

func object(b []byte) (map[string]any, error) {
	var m map[string]any
	if len(b) == 0 {
		return m, nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return nil, schemas.Invalidf("", "must be one JSON object")
	}
	return m, nil
}

// merged does not change its arguments. Their depth is checked where they are decoded.
func merged(target, patch map[string]any) map[string]any {
	out := maps.Clone(target)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(out, k)
		case map[string]any:
			below, _ := out[k].(map[string]any)
			out[k] = merged(below, v)
		default:
			out[k] = v
		}
	}
	return out
}
