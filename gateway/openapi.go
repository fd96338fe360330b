package gateway

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strings"
)

// openAPI describes the HTTP API. A test holds it to the routes and to the types.
//
//go:embed openapi.json
var openAPI string

func (g *Gateway) getOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	version := g.Version
	if version == "" {
		version = "dev"
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	doc := strings.Replace(openAPI, `"version": "0"`, `"version": `+quote(version), 1)
	_, _ = w.Write([]byte(doc)) // nobody is left to tell
	return nil
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // a string always encodes
	}
	return string(b)
}
