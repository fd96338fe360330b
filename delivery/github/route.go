package github

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Route is a destination on GitHub: an issue or a pull request, optionally a thread on lines of its code, optionally the comment that is
// answered.
type Route struct {
	Repo         string `json:"repo"` // owner/name
	Number       int64  `json:"number"`
	Comment      int64  `json:"comment_id,omitzero"`
	Review       int64  `json:"review_comment_id,omitzero"` // id of the first comment of a thread on code
	Installation int64  `json:"installation_id,omitzero"`   // id of the app's installation
}

func parseRoute(route json.RawMessage) (Route, error) {
	var r Route
	if err := chatapi.DecodeRoute(route, &r); err != nil {
		return Route{}, err
	}
	switch {
	case !isRepo(r.Repo):
		return Route{}, schemas.Invalidf("route.repo", "is not an owner and a repository, such as octo/hello")
	case r.Number < 1:
		return Route{}, schemas.Invalidf("route.number", "is not the number of an issue or a pull request")
	case r.Comment < 0 || r.Review < 0 || r.Installation < 0:
		return Route{}, schemas.Invalidf("route", "comment_id, review_comment_id and installation_id are positive")
	}
	return r, nil
}

func isRepo(s string) bool {
	owner, name, found := strings.Cut(s, "/")
	return found && isName(owner) && isName(name) && len(s) <= 140
}

func isName(s string) bool {
	if strings.Trim(s, ".") == "" {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// issue returns the API path of the issue. In GitHub's API a pull request is an issue too.
func (r Route) issue() string {
	return "/repos/" + r.Repo + "/issues/" + strconv.FormatInt(r.Number, 10)
}

// comments returns the path at which the comments are listed. Comments are also created there, except in a thread.
func (r Route) comments() string {
	if r.Review == 0 {
		return r.issue() + "/comments"
	}
	return "/repos/" + r.Repo + "/pulls/" + strconv.FormatInt(r.Number, 10) + "/comments"
}

// write returns the path at which a comment is created.
func (r Route) write() string {
	if r.Review == 0 {
		return r.comments()
	}
	return r.comments() + "/" + strconv.FormatInt(r.Review, 10) + "/replies"
}

// comment returns the path of a comment.
func (r Route) comment(id string) string {
	if r.Review == 0 {
		return "/repos/" + r.Repo + "/issues/comments/" + id
	}
	return "/repos/" + r.Repo + "/pulls/comments/" + id
}
