package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/sandjet/sandjet/models"
)

// errorTable maps errors of the API to classes (platform.claude.com/docs, "Errors" and "Rate limits"): the first matching row counts. A
// spend limit comes as 429, 402 or 400.
var errorTable = []struct { //nolint:gochecknoglobals // a table
	status, below int    // of the response, up to below; 0: any
	kind          string // error.type, or error.details.error_code
	says          string // in error.message, in lower case
	class         models.Class
}{
	{kind: "enforced_spend_limit_reached", class: models.SpendLimit},
	{kind: "billing_error", class: models.SpendLimit},
	{status: 402, class: models.SpendLimit},
	{says: "specified api usage limits", class: models.SpendLimit},
	{says: "specified workspace api usage limits", class: models.SpendLimit},
	{says: "credit balance is too low", class: models.SpendLimit},
	{says: "prompt is too long", class: models.TooLong},
	{says: "exceed context limit", class: models.TooLong},
	{kind: "request_too_large", class: models.TooLong},
	{status: 413, class: models.TooLong},
	{kind: "authentication_error", class: models.BadKey},
	{kind: "permission_error", class: models.BadKey},
	{status: 401, class: models.BadKey},
	{status: 403, class: models.BadKey},
	{kind: "rate_limit_error", class: models.RateLimited},
	{status: 429, class: models.RateLimited},
	{kind: "overloaded_error", class: models.Overloaded},
	{kind: "api_error", class: models.Overloaded},
	{kind: "timeout_error", class: models.Overloaded},
	{status: 408, class: models.Overloaded},
	{status: 409, class: models.Overloaded},
	{status: 500, below: 600, class: models.Overloaded},
}

// refusal returns the class of an error, and the server's message. A status of 0 means that the error came within a stream.
func refusal(status int, body []byte) (models.Class, string) {
	var e struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
			Details struct {
				ErrorCode string `json:"error_code"`
			} `json:"details"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &e) // what is not the API's form is judged by its status
	message := strings.ToLower(e.Error.Message)
	for _, row := range errorTable {
		if (row.status == 0 || status == row.status || status > row.status && status < row.below) &&
			(row.kind == "" || row.kind == e.Error.Type || row.kind == e.Error.Details.ErrorCode) && strings.Contains(message, row.says) {
			return row.class, e.Error.Message
		}
	}
	if status == 0 && e.Error.Type != "invalid_request_error" && e.Error.Type != "not_found_error" {
		return models.Overloaded, e.Error.Message // it had begun to answer
	}
	return models.BadRequest, e.Error.Message
}
