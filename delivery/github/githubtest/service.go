// Package githubtest is a test double of GitHub's REST API for comments: it stores comments, lists them page by page, gives tokens to apps
// whose signature it verifies, and refuses what GitHub refuses.
package githubtest

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Options are the settings of a double.
type Options struct {
	// Token is the only access token that is accepted. Empty: any that is not an installation's.
	Token string
	// App is the id of an app, and Key its public key.
	App string
	Key *rsa.PublicKey
	// Locked are issues (owner/name#number) that accept no comments.
	Locked []string
	Now    func() time.Time
}

// Service is the double.
type Service struct {
	*chatfake.Server

	o      Options
	minted atomic.Int64
}

// New returns a double. It is an [http.Handler]; its address is the adapter's [channel.Options] Base.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o, Server: &chatfake.Server{Now: o.Now, Words: chatfake.Words{
		TooMany: func(after time.Duration, echo string) chatfake.Reply {
			r := failed(http.StatusForbidden, "You have exceeded a secondary rate limit. "+echo)
			if after > 0 {
				r.Header = http.Header{"Retry-After": {strconv.Itoa(int(after.Seconds()))}}
			}
			return r
		},
		Unauthorized: func(echo string) chatfake.Reply { return failed(http.StatusUnauthorized, "Bad credentials "+echo) },
	}}}
	s.Service = http.HandlerFunc(s.serve)
	return s
}

// Minted returns how many installation tokens were created.
func (s *Service) Minted() int { return int(s.minted.Load()) }

func failed(status int, message string) chatfake.Reply {
	return chatfake.JSON(status, map[string]any{"message": message, "documentation_url": "https://docs.github.com/rest"})
}

func (s *Service) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		s.Show(w, r)
		return
	}
	s.answer(r).Write(w)
}

var paths = regexp.MustCompile(`^/repos/([\w.-]+/[\w.-]+)/(issues|pulls)(?:/(\d+))?(?:/comments(?:/(\d+))?)?(/replies|/reactions)?$`)

const installation = "ghs_"

func (s *Service) answer(r *http.Request) chatfake.Reply {
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok { // the older scheme, used by GitHub's own client library for personal tokens
		bearer, ok = strings.CutPrefix(r.Header.Get("Authorization"), "token ")
	}
	switch {
	case !ok || bearer == "":
		return failed(http.StatusUnauthorized, "Requires authentication")
	case strings.HasPrefix(r.URL.Path, "/app"):
		return s.app(r, bearer)
	case strings.HasPrefix(bearer, installation):
		if number, _ := strconv.ParseInt(bearer[len(installation):], 10, 64); number < s.minted.Load() {
			return failed(http.StatusUnauthorized, "Bad credentials") // only the newest token is valid
		}
	case s.o.Token != "" && bearer != s.o.Token:
		return failed(http.StatusUnauthorized, "Bad credentials")
	}
	if r.URL.Path == "/user" {
		return chatfake.JSON(http.StatusOK, map[string]any{"login": "octocat", "id": 1})
	}
	m := paths.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return failed(http.StatusNotFound, "Not Found")
	}
	var sent struct {
		Body    string `json:"body"`
		Content string `json:"content"`
	}
	if r.Method != http.MethodGet && json.NewDecoder(r.Body).Decode(&sent) != nil {
		return failed(http.StatusBadRequest, "Problems parsing JSON")
	}
	repo, number, id, verb := m[1], m[3], m[4], m[5]
	at := repo + "#" + number
	switch {
	case verb == "/reactions" && sent.Content == "eyes":
		s.Note(chatfake.Mark{Kind: "reaction", Place: repo + "#" + number, On: id, What: sent.Content})
		return chatfake.JSON(http.StatusCreated, map[string]any{"id": 1, "content": sent.Content})
	case r.Method == http.MethodPatch && id != "":
		return s.edit(repo, id, sent.Body)
	case r.Method == http.MethodGet && number != "" && id == "":
		return s.list(r, at)
	case r.Method == http.MethodPost && number != "" && (id == "") == (verb == ""):
		if id != "" {
			at += ":" + id
		}
		return s.comment(repo, at, sent.Body)
	}
	return failed(http.StatusNotFound, "Not Found")
}

// app handles the requests that an app authenticates with a JWT of its own.
func (s *Service) app(r *http.Request, jwt string) chatfake.Reply {
	if err := s.verify(jwt); err != nil {
		return failed(http.StatusUnauthorized, "A JSON web token could not be decoded: "+err.Error())
	}
	if r.URL.Path == "/app" {
		return chatfake.JSON(http.StatusOK, map[string]any{"name": "Sandjet", "slug": "sandjet"})
	}
	return chatfake.JSON(http.StatusCreated, map[string]any{"token": installation + strconv.FormatInt(s.minted.Add(1), 10),
		"expires_at": s.o.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
}

func (s *Service) verify(jwt string) error {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 || s.o.Key == nil {
		return fmt.Errorf("it is none")
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return fmt.Errorf("its signature: %w", err)
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(s.o.Key, crypto.SHA256, sum[:], signature); err != nil {
		return fmt.Errorf("its signature: %w", err)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return fmt.Errorf("its claims: %w", err)
	}
	var claims struct {
		From int64  `json:"iat"`
		To   int64  `json:"exp"`
		App  string `json:"iss"`
	}
	now := s.o.Now().Unix()
	if json.Unmarshal(text, &claims) != nil || claims.App != s.o.App || claims.From > now || claims.To < now || claims.To-now > 600 {
		return fmt.Errorf("its claims are not of an app that may do so now")
	}
	return nil
}

var mark = regexp.MustCompile(`\n\n<!-- sandjet:([\w.-]+) -->$`)

// split splits a comment into its text and the key in its mark; the key is empty if there is no mark.
func split(body string) (text, key string) {
	m := mark.FindStringSubmatch(body)
	if m == nil {
		return body, ""
	}
	return strings.TrimSuffix(body, m[0]), m[1]
}

func tooLong(body string) bool { return utf8.RuneCountInString(body) > 65_536 }

func (s *Service) comment(repo, at, body string) chatfake.Reply {
	issue, _, _ := strings.Cut(at, ":")
	switch {
	case strings.TrimSpace(body) == "" || tooLong(body):
		return failed(http.StatusUnprocessableEntity, "Validation Failed")
	case slices.Contains(s.o.Locked, issue):
		return failed(http.StatusForbidden, "Unable to create comment because issue is locked.")
	}
	m := chatfake.Message{ID: strconv.Itoa(s.NextID()), Place: at}
	m.Text, m.Nonce = split(body)
	s.Add(m)
	return chatfake.JSON(http.StatusCreated, shown(repo, m))
}

func shown(repo string, m chatfake.Message) map[string]any {
	id, _ := strconv.Atoi(m.ID)
	body := m.Text
	if m.Nonce != "" {
		body += "\n\n<!-- sandjet:" + m.Nonce + " -->"
	}
	return map[string]any{"id": id, "body": body, "html_url": "https://github.com/" + repo + "/issues/1#issuecomment-" + m.ID}
}

func (s *Service) edit(repo, id, body string) chatfake.Reply {
	for _, m := range s.Messages() {
		if m.ID != id || !strings.HasPrefix(m.Place, repo+"#") {
			continue
		}
		if tooLong(body) {
			return failed(http.StatusUnprocessableEntity, "Validation Failed")
		}
		s.Change(m.Place, id, func(m *chatfake.Message) {
			m.Text, m.Nonce = split(body)
			m.Edits++
		})
		return chatfake.JSON(http.StatusOK, shown(repo, m))
	}
	return failed(http.StatusNotFound, "Not Found")
}

// list returns the comments of an issue, or those in the threads of a pull request, oldest first.
func (s *Service) list(r *http.Request, at string) chatfake.Reply {
	q := r.URL.Query()
	since, err := time.Parse(time.RFC3339, q.Get("since"))
	if err != nil {
		return failed(http.StatusUnprocessableEntity, "since is no time")
	}
	threads := strings.Contains(r.URL.Path, "/pulls/")
	all := []map[string]any{}
	for _, m := range s.Messages() {
		in := m.Place == at
		if threads {
			in = strings.HasPrefix(m.Place, at+":")
		}
		if in && !m.At.Before(since) {
			repo, _, _ := strings.Cut(at, "#")
			all = append(all, shown(repo, m))
		}
	}
	size, err := strconv.Atoi(q.Get("per_page"))
	page, err2 := strconv.Atoi(q.Get("page"))
	if err != nil || err2 != nil || size < 1 || size > 100 || page < 1 {
		return failed(http.StatusUnprocessableEntity, "per_page and page are no numbers")
	}
	from := min((page-1)*size, len(all))
	return chatfake.JSON(http.StatusOK, all[from:min(from+size, len(all))])
}
