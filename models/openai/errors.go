package openai

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/models"
)

// errorTable maps errors of the API, and of other servers with the same API, to classes (platform.openai.com/docs, "Error codes"): the
// first matching row counts. 429 is a rate limit, a spend limit, or a request that is larger than the limit.
var errorTable = []struct { //nolint:gochecknoglobals // a table
	status, below int    // of the response, up to below; 0: any
	code          string // error.code or error.type
	says          string // in error.message, in lower case
	class         models.Class
}{
	{code: "insufficient_quota", class: models.SpendLimit},
	{code: "billing_hard_limit_reached", class: models.SpendLimit},
	{code: "billing_not_active", class: models.SpendLimit},
	{status: 402, class: models.SpendLimit},
	{code: "context_length_exceeded", class: models.TooLong},
	{code: "exceed_context_size_error", class: models.TooLong}, // llama.cpp
	{says: "maximum context length", class: models.TooLong},    // vLLM, OpenRouter
	{says: "context window", class: models.TooLong},
	{status: 429, says: "request too large", class: models.TooLong},
	{status: 413, class: models.TooLong},
	{code: "invalid_api_key", class: models.BadKey},
	{status: 401, class: models.BadKey},
	{status: 403, class: models.BadKey},
	{code: "rate_limit_exceeded", class: models.RateLimited},
	{status: 429, class: models.RateLimited},
	{code: "server_error", class: models.Overloaded},
	{status: 408, class: models.Overloaded},
	{status: 409, class: models.Overloaded},
	{status: 500, below: 600, class: models.Overloaded},
}

// refusal returns the class of an error, and the server's message. A status of 0 means that the error came within a stream; its code may
// then be a status.
func refusal(status int, body []byte) (models.Class, string) {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"` // of vLLM and others, without an error around it
	}
	_ = json.Unmarshal(body, &e) // what is not the API's form is judged by its status
	var in struct {
		Type    string          `json:"type"`
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"` // a word, a number or null
	}
	if json.Unmarshal(e.Error, &in) != nil {
		_ = json.Unmarshal(e.Error, &in.Message) // Ollama's is a text
	}
	if in.Message == "" {
		in.Message = e.Message
	}
	code := strings.Trim(string(in.Code), `"`)
	if n, err := strconv.Atoi(code); err == nil && status == 0 {
		status = n
	}
	message := strings.ToLower(in.Message)
	for _, row := range errorTable {
		if (row.status == 0 || status == row.status || status > row.status && status < row.below) &&
			(row.code == "" || row.code == code || row.code == in.Type) && strings.Contains(message, row.says) {
			return row.class, in.Message
		}
	}
	if status == 0 && !slices.Contains([]string{in.Type, code}, "invalid_request_error") {
		return models.Overloaded, in.Message // it had begun to answer
	}
	return models.BadRequest, in.Message
}
