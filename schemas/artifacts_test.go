package schemas_test

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func TestArtifactPatterns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, yes, no, folder string
		depth                    int
	}{
		{"report.pdf", "report.pdf", "sub/report.pdf report.pdfx", ".", 0},
		{"/plots/*.png", "plots/a.png", "plots/.a.png plots/sub/a.png a.png plots/a.pngx", "plots", 0},
		{"plots/?/[ab]*", "plots/x/a plots/y/b1", "plots/xy/a plots/x/c plots/x", "plots", 1},
		{"**/*.csv", "a.csv b/a.csv b/c/d.csv", ".git/a.csv b/.x/a.csv a.txt b/.a.csv", ".", -1},
		{"a/**/b/**/c", "a/b/c a/x/b/y/z/c a/b/b/c", "a/c a/b b/c a/b/c/d", "a", -1},
		{"**", "a a/b", ".a a/.b .b/a", ".", -1},
		{".config/**", ".config/a .config/a/b", ".config/.a config/a", ".config", -1},
		{`a\*b`, "a*b", "axb", ".", 0},
		{"./a//b", "a/b", "a", "a", 0},
	} {
		p, err := schemas.ParseArtifactPattern(tt.pattern)
		if err != nil {
			t.Errorf("%q: %v", tt.pattern, err)
			continue
		}
		for name := range strings.FieldsSeq(tt.yes) {
			if !p.Matches(name) {
				t.Errorf("%q does not match %q", tt.pattern, name)
			}
		}
		for name := range strings.FieldsSeq(tt.no) {
			if p.Matches(name) {
				t.Errorf("%q matches %q", tt.pattern, name)
			}
		}
		if folder, depth := p.Reach(); folder != tt.folder || depth != tt.depth {
			t.Errorf("%q reaches %d below %q, want %d below %q", tt.pattern, depth, folder, tt.depth, tt.folder)
		}
	}
	for _, bad := range []string{"", "/", ".", "../x", "a/../b", "[a", `a\`, "a\nb", "a\x00", "\xff", strings.Repeat("a", 513)} {
		if _, err := schemas.ParseArtifactPattern(bad); schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	many := make([]string, schemas.MaxArtifactPatterns+1)
	if _, err := schemas.ParseArtifactPatterns("artifacts", many); schemas.Public(err).Field != "artifacts" {
		t.Errorf("too many: %v", err)
	}
	if _, err := schemas.ParseArtifactPatterns("artifacts", []string{"a", "["}); schemas.Public(err).Field != "artifacts[1]" {
		t.Errorf("the second: %v", err)
	}
}

// FuzzArtifactPattern: a pattern ends quickly, and matches nothing outside of what it says that it reaches.
func FuzzArtifactPattern(f *testing.F) {
	f.Add("plots/*.png", "plots/a.png")
	f.Add(strings.Repeat("**/a/", 50)+"b", strings.Repeat("a/", 100)+"a")
	f.Add("a/[b-", "a/b")
	f.Fuzz(func(t *testing.T, pattern, file string) {
		p, err := schemas.ParseArtifactPattern(pattern)
		if err != nil {
			return
		}
		folder, depth := p.Reach()
		file = path.Clean("/" + file)[1:]
		if !p.Matches(file) {
			return
		}
		rest, in := file, true
		if folder != "." {
			rest, in = strings.CutPrefix(file, folder+"/")
		}
		if !in || depth >= 0 && strings.Count(rest, "/") > depth {
			t.Errorf("%q matches %q, and reaches %d below %q", pattern, file, depth, folder)
		}
	})
}

func TestArtifactsAreTheSameWhoeverFindsThem(t *testing.T) {
	t.Parallel()
	c := schemas.Call{Account: "acct_1", Conversation: "c", ID: "call_1"}
	id := schemas.ArtifactIDOf(c, "outputs/a", "00")
	if err := id.Validate(); err != nil || id != schemas.ArtifactIDOf(c, "outputs/a", "00") {
		t.Errorf("%q: %v", id, err)
	}
	seen := map[schemas.ArtifactID]bool{id: true}
	other := []schemas.Call{c, c, c}
	other[0].Account, other[1].Conversation, other[2].ID = "acct_2", "cc", "all_1"
	for _, id := range []schemas.ArtifactID{
		schemas.ArtifactIDOf(other[0], "outputs/a", "00"), schemas.ArtifactIDOf(other[1], "outputs/a", "00"),
		schemas.ArtifactIDOf(other[2], "outputs/a", "00"), schemas.ArtifactIDOf(c, "outputs/a0", "0"), schemas.ArtifactIDOf(c, "outputs/a", "01"),
	} {
		if seen[id] {
			t.Errorf("%q stands for two", id)
		}
		seen[id] = true
	}
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, begin, media string
		kind               schemas.ArtifactKind
		inline             bool
	}{
		{"a.PNG", "<html>", "image/png", schemas.KindPlot, true},
		{"a.svg", "", "image/svg+xml", schemas.KindPlot, false},
		{"a.csv", "", "text/csv; charset=utf-8", schemas.KindTable, false},
		{"a.html", "", "text/html; charset=utf-8", schemas.KindReport, false},
		{"a.pdf", "", "application/pdf", schemas.KindReport, false},
		{"Makefile", "<script>", "text/plain; charset=utf-8", schemas.KindReport, true},
		{"photo", "\x89PNG\x0d\x0a\x1a\x0a", "image/png", schemas.KindPlot, true},
		{"latin", "caf\xe9 <html>", "application/octet-stream", schemas.KindBinary, false},
		{"nul", "<html>\x00", "application/octet-stream", schemas.KindBinary, false},
		{"empty", "", "application/octet-stream", schemas.KindBinary, false},
	} {
		got := schemas.MediaType(tt.name, []byte(tt.begin))
		if got != tt.media || schemas.KindOf(got) != tt.kind || schemas.ShownInline(got) != tt.inline {
			t.Errorf("%s %q: %s %s %t", tt.name, tt.begin, got, schemas.KindOf(got), schemas.ShownInline(got))
		}
	}
}

// FuzzMediaType: whatever a file is called and holds, what a browser shows in place is no page.
func FuzzMediaType(f *testing.F) {
	f.Add("a.html", []byte("<script>"))
	f.Add("a", []byte("\xef\xbb\xbf<!DOCTYPE html>"))
	f.Fuzz(func(t *testing.T, name string, begin []byte) {
		media := schemas.MediaType(name, begin)
		if schemas.ShownInline(media) && (strings.Contains(media, "html") || strings.Contains(media, "xml") || strings.Contains(media, "svg")) {
			t.Errorf("%q is shown as %q", name, media)
		}
	})
}

func TestSkippedFilesAreBounded(t *testing.T) {
	t.Parallel()
	var all []schemas.SkippedArtifact
	for n := range schemas.MaxArtifactsSkipped + 7 {
		all = append(all, schemas.SkippedArtifact{Path: fmt.Sprintf("%03d", 100-n), Reason: schemas.SkipLink})
	}
	got := schemas.BoundSkipped(all)
	last := got[len(got)-1]
	if len(got) != schemas.MaxArtifactsSkipped+1 || got[0].Path != "074" || last.Count != 7 || last.Path != "" {
		t.Errorf("%d: %+v … %+v", len(got), got[0], last)
	}
}

// TestAResultWithArtifactsFitsItsEvent: the most that a call can have, under the longest names.
func TestAResultWithArtifactsFitsItsEvent(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("\u2028", schemas.MaxFilePath/3) // three bytes, and six in JSON
	var r schemas.Result
	for range schemas.MaxArtifacts {
		a := schemas.NewArtifact(schemas.Call{ID: "c"}, name, 1, strings.Repeat("a", 64), nil, time.Now())
		r.Artifacts = append(r.Artifacts, a)
	}
	for range schemas.MaxArtifactsSkipped {
		r.SkippedArtifacts = append(r.SkippedArtifacts, schemas.SkippedArtifact{Path: name, Reason: schemas.SkipLink})
	}
	text, err := schemas.EncodeJSON(r)
	if err != nil || len(text) > schemas.MaxEvent {
		t.Errorf("%d bytes, at most %d: %v", len(text), schemas.MaxEvent, err)
	}
}

// TestArtifactsOfAJobWithin: what is left out is counted, and the rest is within the bytes but for the numbers.
func TestArtifactsOfAJobWithin(t *testing.T) {
	t.Parallel()
	var all schemas.JobArtifacts
	for n := range schemas.MaxArtifacts {
		name := fmt.Sprint("outputs/", n)
		all.Artifacts = append(all.Artifacts, schemas.NewArtifact(schemas.Call{ID: "c"}, name, 1, strings.Repeat("a", 64), nil, time.Now()))
		all.SkippedArtifacts = append(all.SkippedArtifacts, schemas.SkippedArtifact{Path: name, Reason: schemas.SkipLink})
	}
	all.SkippedArtifacts = append(all.SkippedArtifacts, schemas.SkippedArtifact{Reason: schemas.SkipLink, Count: 30})
	if got := all.Within(all.ListSize()); got.ListSize() != all.ListSize() {
		t.Errorf("%+v", got)
	}
	for size := 0; size < all.ListSize(); size += 100 {
		got := all.Within(size)
		skipped := 0
		for _, s := range got.SkippedArtifacts {
			skipped += max(s.Count, 1)
		}
		if len(got.Artifacts)+got.MoreArtifacts != schemas.MaxArtifacts || skipped != schemas.MaxArtifacts+30 || got.ListSize() > size+200 {
			t.Fatalf("within %d: %d bytes, %d artifacts and %d more, %d skipped", size, got.ListSize(), len(got.Artifacts), got.MoreArtifacts, skipped)
		}
	}
}
