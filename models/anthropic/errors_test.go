package anthropic

import (
	"fmt"
	"testing"

	"github.com/sandjet/sandjet/models"
)

func TestWhatErrorsMean(t *testing.T) {
	body := func(kind, message string) string {
		return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":"r"}`, kind, message)
	}
	for _, c := range []struct {
		status int
		body   string
		want   models.Class
	}{
		{429, body("rate_limit_error", "slow down"), models.RateLimited},
		{429, `{"error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}`, models.SpendLimit},
		{400, body("invalid_request_error", "You have reached your specified API usage limits. You will regain access on"), models.SpendLimit},
		{400, body("invalid_request_error", "You have reached your specified workspace API usage limits."), models.SpendLimit},
		{400, body("invalid_request_error", "Your credit balance is too low to access the API"), models.SpendLimit},
		{402, body("billing_error", "x"), models.SpendLimit},
		{400, body("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), models.TooLong},
		{400, body("invalid_request_error", "input length and `max_tokens` exceed context limit: 1 + 2 > 2"), models.TooLong},
		{413, "<html>too large</html>", models.TooLong},
		{401, body("authentication_error", "x"), models.BadKey},
		{403, body("permission_error", "x"), models.BadKey},
		{404, body("not_found_error", "model: x"), models.BadRequest},
		{400, body("invalid_request_error", "x"), models.BadRequest},
		{529, body("overloaded_error", "x"), models.Overloaded},
		{500, "", models.Overloaded}, {502, "<html>", models.Overloaded}, {408, "", models.Overloaded}, {409, "", models.Overloaded},
		{0, body("overloaded_error", "x"), models.Overloaded}, {0, body("rate_limit_error", "x"), models.RateLimited},
		{0, body("invalid_request_error", "x"), models.BadRequest}, {0, body("new_error", "x"), models.Overloaded},
	} {
		if got, _ := refusal(c.status, []byte(c.body)); got != c.want {
			t.Errorf("%d %s is %s, not %s", c.status, c.body, got, c.want)
		}
	}
}
