package openai

import (
	"testing"

	"github.com/sandjet/sandjet/models"
)

func TestWhatErrorsMean(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   models.Class
	}{
		{429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, models.RateLimited},
		{429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, models.SpendLimit},
		{400, `{"error":{"message":"x","type":"invalid_request_error","code":"billing_hard_limit_reached"}}`, models.SpendLimit},
		{402, `{"error":{"message":"Insufficient credits","code":402}}`, models.SpendLimit},
		{429, `{"error":{"message":"Request too large for m on tokens per min (TPM)","type":"tokens","code":"rate_limit_exceeded"}}`, models.TooLong},
		{400, `{"error":{"message":"x","type":"invalid_request_error","code":"context_length_exceeded"}}`, models.TooLong},
		{400, `{"object":"error","message":"This model's maximum context length is 4096 tokens","type":"BadRequestError","code":400}`, models.TooLong},
		{401, `{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}`, models.BadKey},
		{403, `{"error":{"message":"Country not supported","code":null}}`, models.BadKey},
		{404, `{"error":"model \"x\" not found, try pulling it first"}`, models.BadRequest},
		{400, `{"error":{"message":"x","type":"invalid_request_error"}}`, models.BadRequest},
		{500, ``, models.Overloaded}, {503, `<html>`, models.Overloaded}, {409, ``, models.Overloaded},
		{0, `{"error":{"message":"x","type":"server_error","code":null}}`, models.Overloaded},
		{0, `{"error":{"message":"x","code":429}}`, models.RateLimited}, {0, `{"error":{"message":"x","code":502}}`, models.Overloaded},
		{0, `{"error":{"message":"x","type":"invalid_request_error"}}`, models.BadRequest}, {0, `{"error":"x"}`, models.Overloaded},
	} {
		got, message := refusal(c.status, []byte(c.body))
		if got != c.want || len(c.body) > 10 && message == "" {
			t.Errorf("%d %s is %s %q, not %s", c.status, c.body, got, message, c.want)
		}
	}
}
