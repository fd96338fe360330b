package channels

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// SetUp is the response to the setup of a channel.
type SetUp struct {
	// Address is where the service posts to.
	Address string `json:"address"`
	// Registered says that the address is registered with the service. Otherwise a person enters it there.
	Registered bool `json:"registered"`
}

// Setup registers this gateway's address for the channel with the chat service, if the service has an API for that, and returns the
// address.
func (h *Channels) Setup(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	var in struct {
		URL string `json:"url"`
	}
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	base, err := url.Parse(strings.TrimRight(in.URL, "/"))
	plain := err == nil && base.Host != "" && base.User == nil && base.RawQuery == "" && base.Fragment == ""
	if !plain || base.Scheme != "https" && base.Scheme != "http" {
		return schemas.Invalidf("url", "%q is not where chat services reach this gateway: write https://HOST", schemas.Quotable(in.URL))
	}
	c, err := records.Get(r.Context(), a, ID(r))
	if err != nil {
		return err
	}
	hook := base.JoinPath("webhooks", string(a), string(c.ID))
	out := SetUp{Address: hook.String()}
	if h.o.Setup != nil {
		if out.Registered, err = h.o.Setup(r.Context(), c, hook); err != nil {
			return err
		}
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}
