package markdown

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/proptest"
)

var formats = []channel.Format{channel.PlainText, channel.TelegramHTML, channel.SlackMrkdwn, channel.DiscordText, channel.GitHubText}

var countings = []channel.Unit{channel.UTF16, channel.CodePoints, channel.Bytes}

func documents() *rapid.Generator[string] {
	piece := rapid.SampledFrom(scraps)
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 24).Draw(t, "scraps"), "")
	})
}

// holds checks all properties of a rendered document.
func holds(document string, o Options) error {
	r := Render(document, o)
	if len(r.Parts) > max(o.MaxParts, 0) {
		return fmt.Errorf("%d parts", len(r.Parts))
	}
	var read, plains, all strings.Builder
	for i, p := range r.Parts {
		if err := partHolds(p, o); err != nil {
			return fmt.Errorf("part %d: %w\n%s", i, err, p.Text)
		}
		seen := p.Text
		var err error
		switch o.Format {
		case channel.TelegramHTML:
			seen, err = readTelegram(p.Text)
		case channel.SlackMrkdwn:
			seen, err = readSlack(p.Text)
		case channel.GitHubText, channel.DiscordText:
			seen = readMarkdown(p.Text)
		case channel.PlainText:
		}
		if err != nil {
			return fmt.Errorf("part %d: %w\n%s", i, err, p.Text)
		}
		if o.Format == channel.GitHubText {
			err = again(p, o)
		}
		if err != nil {
			return fmt.Errorf("part %d: %w\n%s", i, err, p.Text)
		}
		read.WriteString(seen)
		all.WriteString(p.Text)
		plains.WriteString(p.Plain)
	}
	if r.Cut {
		return nil
	}
	want := readMarkdown(clean(document))
	drop := ""
	switch o.Format {
	case channel.SlackMrkdwn:
		drop = "*_~`0123456789>"
	case channel.DiscordText:
		drop = "0123456789" // Discord knows one kind of numbers
		if strings.Contains(document, "&") {
			return nil // and no entities, which the reader decodes
		}
	case channel.PlainText, channel.TelegramHTML, channel.GitHubText:
	}
	if got, want := essence(plains.String(), "->_"), essence(want, "->_"); !hasInOrder(got, want) {
		return fmt.Errorf("plainly reads\n%q, not\n%q:\n%s", got, want, plains.String())
	}
	if o.Format == channel.PlainText {
		return nil
	}
	if err := clustersWhole(r.Parts, document); err != nil {
		return err
	}
	got, want := essence(read.String(), drop), essence(want, drop)
	if strings.ContainsAny(document, "|:") && hasInOrder(got, want) {
		return nil // a table: addresses are written as text, and column names are repeated
	}
	if got != want {
		return fmt.Errorf("reads\n%q, not\n%q:\n%s", got, want, all.String())
	}
	return nil
}

// hasInOrder reports whether a text contains all characters of another in their order.
func hasInOrder(s, all string) bool {
	rest := []rune(all)
	for _, r := range s {
		if len(rest) > 0 && rest[0] == r {
			rest = rest[1:]
		}
	}
	return len(rest) == 0
}

func partHolds(p Part, o Options) error {
	for _, s := range []string{p.Text, p.Plain} {
		switch {
		case units(s, o.Unit) > o.Limit:
			return fmt.Errorf("%d units of %d", units(s, o.Unit), o.Limit)
		case !utf8.ValidString(s):
			return fmt.Errorf("no UTF-8")
		case strings.TrimSpace(s) == "":
			return fmt.Errorf("nothing in it")
		case strings.ContainsAny(s, "\x00\x1b\r"):
			return fmt.Errorf("a control character")
		}
	}
	for _, call := range []string{"@everyone", "@here", "<!channel>", "<@123>"} {
		if strings.Contains(p.Plain, call) && strings.HasPrefix(call, "@") || o.Format != channel.GitHubText && o.Format != channel.DiscordText &&
			o.Format != channel.PlainText && strings.Contains(p.Text, call) && strings.HasPrefix(call, "<") {
			return fmt.Errorf("it calls %s", call)
		}
	}
	return nil
}

// again renders a part of GitHub's Markdown again: the result is one part with the same text.
func again(p Part, o Options) error {
	o.Limit += 200 // a line break may have become a space that ends an address
	r := Render(p.Text, o)
	if len(r.Parts) != 1 || essence(readMarkdown(r.Parts[0].Text), "") != essence(readMarkdown(p.Text), "") {
		return fmt.Errorf("once more: %d parts: %q", len(r.Parts), r.Parts)
	}
	return nil
}

// clustersWhole returns an error if a part begins within a grapheme cluster of the document.
func clustersWhole(parts []Part, document string) error {
	whole := map[string]bool{}
	g := graphemes.FromString(document)
	for g.Next() {
		whole[g.Value()] = true
	}
	for _, p := range parts {
		for g := graphemes.FromString(p.Plain); g.Next(); {
			if v := g.Value(); utf8.RuneCountInString(v) > 1 && !whole[v] && !strings.ContainsAny(v, "\u200b\n") {
				return fmt.Errorf("a cluster that the document has not: %q", v)
			}
		}
	}
	return nil
}

var random = flag.Int("documents", 0, "random documents in each format, besides those that are always the same")

// TestDocuments checks the same documents each time, 20,000 in each format in the long form. To check others while working on this: go
// test ./delivery/markdown -run TestDocuments -documents 100000.
func TestDocuments(t *testing.T) {
	t.Parallel()
	checks := 200
	if longtest.Asked() {
		checks = 20_000
	}
	all := documents()
	for _, f := range formats {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			for i := range checks {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				document := all.Example(i)
				o := Options{Format: f, Limit: 600 + r.IntN(301), MaxParts: 100, Unit: countings[r.IntN(len(countings))]}
				if err := holds(document, o); err != nil {
					t.Fatalf("document %d, %d %s: %v\n%q", i, o.Limit, o.Unit, err, document)
				}
			}
			for range *random / 100 {
				proptest.Check(t, func(t *rapid.T) {
					o := Options{
						Format: f, Limit: rapid.IntRange(600, 900).Draw(t, "limit"), MaxParts: 100, Unit: rapid.SampledFrom(countings).Draw(t, "unit"),
					}
					if err := holds(all.Draw(t, "document"), o); err != nil {
						t.Fatal(err)
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// render renders a document with the minimal limit.
func render(t *testing.T, document string, f channel.Format, maxParts int) Rendered {
	t.Helper()
	o := Options{Format: f, Limit: leastLimit, MaxParts: maxParts}
	r := Render(document, o)
	for _, p := range r.Parts {
		if err := partHolds(p, o); err != nil {
			t.Error(err)
		}
	}
	return r
}

func TestALongDocumentIsCutAndSaysSo(t *testing.T) {
	t.Parallel()
	document := strings.Repeat("A paragraph of some words that goes on for a while.\n\n", 200)
	for _, f := range formats {
		r := render(t, document, f, 3)
		if !r.Cut || len(r.Parts) != 3 || !strings.HasSuffix(r.Parts[2].Text, cutNote) || !strings.HasSuffix(r.Parts[2].Plain, cutNote) {
			t.Errorf("%s: cut %v, %d parts, the last ends with %q", f, r.Cut, len(r.Parts), r.Parts[len(r.Parts)-1].Text)
		}
	}
	if r := render(t, "", channel.PlainText, 0); r.Cut || len(r.Parts) != 0 {
		t.Errorf("nothing is %+v", r)
	}
	if r := Render(strings.Repeat("[x](https://example.com/"+strings.Repeat("y", 400)+") ", 400), Options{Limit: 600, MaxParts: 1}); !r.Cut {
		t.Error("a document whose end was never read is not cut")
	}
}

func TestPartsEndWhereReadersExpectIt(t *testing.T) {
	t.Parallel()
	words := strings.TrimSpace(strings.Repeat("some words ", 35))
	for _, c := range []struct {
		name, document string
		format         channel.Format
		second         string // prefix of the second part
	}{
		{"block", words + "\n\n" + words, channel.PlainText, "some words"},
		{"heading", words + "\n\n## Heading\n\n" + words, channel.GitHubText, "## Heading\n\nsome"},
		{"line", "- " + words + "\n- second " + words + "\n- third", channel.DiscordText, "- second"},
		{"bold", "**" + words + words + "**", channel.SlackMrkdwn, "*"},
		{"fence", "```" + strings.Repeat("l", 40) + "\n" + strings.Repeat("code line\n", 70) + "```", channel.DiscordText,
			"```" + strings.Repeat("l", 32) + "\ncode line"},
		{"quote", "> " + words + "\n>\n> second " + words, channel.TelegramHTML, "<blockquote>second"},
		{"item", "1. " + words + "\n\n   second " + words, channel.GitHubText, "second"},
		{"emoji", strings.Repeat("👩‍👩‍👧‍👦", 60), channel.TelegramHTML, "👩‍👩‍👧‍👦"},
	} {
		r := render(t, c.document, c.format, 0)
		if len(r.Parts) < 2 || !strings.HasPrefix(r.Parts[1].Text, c.second) {
			t.Errorf("%s: %d parts: %q", c.name, len(r.Parts), r.Parts)
		}
	}
}

func TestNoListenerIsCalled(t *testing.T) {
	t.Parallel()
	const document = "@everyone @here @user <!channel> <@U123> a@b.example **@team** `@decorator` [@x](https://e.com) x@everyone"
	for _, f := range formats {
		r := render(t, document, f, 0)
		for _, call := range []string{"@everyone", "@here", "@user", "<!channel>", "@team", "[@x", "<@U123>"} {
			if strings.Contains(r.Parts[0].Text, call) && (call != "<!channel>" || f == channel.SlackMrkdwn) {
				t.Errorf("%s calls %s: %s", f, call, r.Parts[0].Text)
			}
		}
		if f != channel.PlainText && !strings.Contains(r.Parts[0].Text, "@decorator") {
			t.Errorf("%s changes code: %s", f, r.Parts[0].Text)
		}
	}
	if r := Render("@everyone", Options{Format: channel.DiscordText, AllowMentions: true}); r.Parts[0].Text != "@everyone" {
		t.Errorf("allowed, it is %q", r.Parts[0].Text)
	}
}

// If a mark is dropped, its neighbours lose the punctuation that they need.
func TestMarksFallWithTheirNeighbours(t *testing.T) {
	t.Parallel()
	o := Options{Format: channel.GitHubText, Limit: leastLimit, Unit: channel.UTF16, MaxParts: 8}
	for document, want := range map[string]string{
		"*_*~~gone~~":  `\_gone`,
		"*a*~~gone~~":  "*a*gone",
		"**_**~~x~~ y": `\_x y`,
		"*_* ~~gone~~": `*\_* ~~gone~~`,
		"!*_*":         `!*\_*`,
	} {
		if err := holds(document, o); err != nil {
			t.Errorf("%q: %v", document, err)
		}
		if got := Render(document, o).Parts[0].Text; got != want {
			t.Errorf("%q is %q, want %q", document, got, want)
		}
	}
}
