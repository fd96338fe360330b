package chatapi

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// hidden replaces a secret.
const hidden = "[secret]"

// reasonAtMost is the maximal length of an error's reason, in bytes.
const reasonAtMost = 400

// Redact replaces the secrets in a text, in every encoding in which a request or a response may contain them, and truncates the text to
// 400 bytes. It truncates after the replacement, so that no part of a secret remains.
func Redact(text string, secrets []string) string {
	var forms []string
	for _, s := range secrets {
		forms = append(forms, formsOf(s)...)
	}
	// Longest first, because one may contain another.
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	for _, f := range slices.Compact(forms) {
		text = strings.ReplaceAll(text, f, hidden)
	}
	text = strings.ToValidUTF8(text, "�")
	if len(text) > reasonAtMost {
		text = strings.ToValidUTF8(text[:reasonAtMost], "") + "…"
	}
	return text
}

// formsOf returns the encodings in which a secret may be written.
func formsOf(s string) []string {
	if s == "" {
		return nil
	}
	quoted := strconv.Quote(s)
	ascii := strconv.QuoteToASCII(s)
	forms := []string{s, url.PathEscape(s), url.QueryEscape(s), quoted[1 : len(quoted)-1], ascii[1 : len(ascii)-1],
		strings.ReplaceAll(s, "/", `\/`), hex.EncodeToString([]byte(s)),
		base64.StdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s))}
	if encoded, err := Encode(s); err == nil {
		forms = append(forms, strings.Trim(string(encoded), `"`))
	}
	return forms
}

// Secrets returns the values of a credential and more, for [Call] Secrets.
func Secrets(credential map[string]string, more ...string) []string {
	list := slices.Clone(more)
	for _, v := range credential {
		list = append(list, v)
	}
	return list
}
