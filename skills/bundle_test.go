package skills_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/skills"
)

const manifest = "---\nname: pdf\ndescription: Fills forms.\n---\nRead the form first.\n"

// packed is a tar of headers and contents.
func packed(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		content := []byte(h.PAXRecords["SANDJET.content"])
		h.PAXRecords = nil
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func file(name, content string) tar.Header {
	return tar.Header{Name: name, Mode: 0o600, PAXRecords: map[string]string{"SANDJET.content": content}}
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestTheSameFolderHasTheSameDigest: order, times, owners, folders, compression and the folder's own name change nothing.
func TestTheSameFolderHasTheSameDigest(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(7, 64))
	var want string
	for round := range 40 {
		prefix := []string{"", "./", "pdf/", "./pdf/"}[round%4]
		entries := []tar.Header{
			file(prefix+"SKILL.md", manifest), file(prefix+"references/a.md", "a"), file(prefix+"data/\u00e9 b.bin", "\x00\xff"),
		}
		run := file(prefix+"scripts/fill.sh", "#!/bin/sh\n")
		run.Mode = 0o711
		entries = append(entries, run)
		for i := range entries {
			entries[i].ModTime = time.Unix(chance.Int64N(1<<30), 0)
			entries[i].Uid, entries[i].Uname = chance.IntN(5000), "somebody"
		}
		if round%3 == 0 {
			entries = append(entries, tar.Header{Name: prefix + "empty/", Typeflag: tar.TypeDir, Mode: 0o755})
		}
		chance.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		sent := packed(t, entries...)
		if round%2 == 0 {
			sent = zipped(t, sent)
		}
		b, err := skills.Read(bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := b.Tar()
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = skills.Digest(whole)
		}
		if got := skills.Digest(whole); got != want {
			t.Fatalf("round %d: the digest is %s, was %s", round, got, want)
		}
		parsed, perr := skills.Parse(whole)
		again, err := skills.Read(bytes.NewReader(whole))
		if perr != nil || !reflect.DeepEqual(parsed, again) {
			t.Fatalf("parsed %+v, read %+v: %v", parsed, again, perr)
		}
		if err != nil || !reflect.DeepEqual(again, b) {
			t.Fatalf("what was written is read as something else: %v", err)
		}
		if string(b.Skill()) != manifest || b.Manifest.Name != "pdf" || len(b.Files) != 4 {
			t.Fatalf("%+v", b.Manifest)
		}
		if i := slices.IndexFunc(b.Files, func(f skills.File) bool { return f.Path == "scripts/fill.sh" }); i < 0 || !b.Files[i].Executable {
			t.Fatal("what may be executed is not any more")
		}
	}
}

// TestOtherContentHasAnotherDigest: each of these is another bundle.
func TestOtherContentHasAnotherDigest(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for i, files := range [][]skills.File{
		{{Path: "SKILL.md", Content: []byte(manifest)}},
		{{Path: "SKILL.md", Content: []byte(manifest + "x")}},
		{{Path: "SKILL.md", Content: []byte(manifest)}, {Path: "a", Content: []byte("1")}},
		{{Path: "SKILL.md", Content: []byte(manifest)}, {Path: "b", Content: []byte("1")}},
		{{Path: "SKILL.md", Content: []byte(manifest)}, {Path: "a", Content: []byte("1"), Executable: true}},
	} {
		b, err := skills.New(files)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := b.Tar()
		if err != nil {
			t.Fatal(err)
		}
		if was, ok := seen[skills.Digest(whole)]; ok {
			t.Errorf("%d has the digest of %d", i, was)
		}
		seen[skills.Digest(whole)] = i
	}
}

// TestWhatABundleMayNotHave: each is refused, with a word that says why.
func TestWhatABundleMayNotHave(t *testing.T) {
	t.Parallel()
	skill := file("SKILL.md", manifest)
	many := []tar.Header{skill}
	for i := range schemas.MaxSkillFiles {
		many = append(many, file(fmt.Sprintf("f%d", i), ""))
	}
	big := []tar.Header{skill}
	for i := range schemas.MaxSkillBundle/schemas.MaxSkillFile + 1 {
		big = append(big, file(fmt.Sprintf("f%d", i), strings.Repeat("x", schemas.MaxSkillFile)))
	}
	for _, c := range []struct {
		name string
		sent []byte
		code schemas.Code
		says string
	}{
		{"nothing", nil, schemas.Invalid, "no files"},
		{"no tar", []byte("PK\x03\x04 this is a zip and no tar at all"), schemas.Invalid, "not a tar"},
		{"cut off", packed(t, skill, file("a", strings.Repeat("x", 4000)))[:3000], schemas.Invalid, "not a tar"},
		{"half a gzip", zipped(t, packed(t, skill))[:40], schemas.Invalid, "not a tar"},
		{"no SKILL.md", packed(t, file("skill.md", manifest)), schemas.Invalid, "missing"},
		{"two folders", packed(t, file("pdf/SKILL.md", manifest), file("other/a", "")), schemas.Invalid, "missing"},
		{"another folder", packed(t, file("doc/SKILL.md", manifest)), schemas.Invalid, "must be the same"},
		{"up", packed(t, skill, file("../a", "")), schemas.Invalid, "leads out"},
		{"up inside", packed(t, skill, file("a/../../b", "")), schemas.Invalid, "leads out"},
		{"up and back", packed(t, skill, file("a/../b", "")), schemas.Invalid, "leads out"},
		{"absolute", packed(t, skill, file("/etc/passwd", "")), schemas.Invalid, "below the skill's folder"},
		{"of Windows", packed(t, skill, file(`C:\a`, "")), schemas.Invalid, "below the skill's folder"},
		{"backslash", packed(t, skill, file(`..\a`, "")), schemas.Invalid, "below the skill's folder"},
		{"line break", packed(t, skill, file("a\nb", "")), schemas.Invalid, "control character"},
		{"long", packed(t, skill, file(strings.Repeat("a/", 300)+"b", "")), schemas.Invalid, "longer than"},
		{"link", packed(t, skill, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc"}), schemas.Invalid, "links"},
		{"hard link", packed(t, skill, tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: "SKILL.md"}), schemas.Invalid, "links"},
		{"device", packed(t, skill, tar.Header{Name: "a", Typeflag: tar.TypeChar}), schemas.Invalid, "devices"},
		{"twice", packed(t, skill, file("a", ""), file("./a", "")), schemas.Invalid, "twice"},
		{"case", packed(t, skill, file("a/B", ""), file("A/c", "")), schemas.Invalid, "upper and lower case"},
		{"file and folder", packed(t, skill, file("a", ""), file("a/b", "")), schemas.Invalid, "a file and a folder"},
		{"our mark", packed(t, skill, file(".sandjet-skill", "")), schemas.Invalid, "kept"},
		{"large file", packed(t, skill, file("a", strings.Repeat("x", schemas.MaxSkillFile+1))), schemas.Exhausted, "larger"},
		{"large", zipped(t, packed(t, big...)), schemas.Exhausted, "larger"},
		{"many", packed(t, many...), schemas.Exhausted, "more than"},
	} {
		_, err := skills.Read(bytes.NewReader(c.sent))
		if schemas.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestABombIsNotUnpacked: little that becomes much is refused before it does.
func TestABombIsNotUnpacked(t *testing.T) {
	t.Parallel()
	var sent bytes.Buffer
	z := gzip.NewWriter(&sent)
	if _, err := z.Write(packed(t, file("SKILL.md", manifest))[:1024]); err != nil {
		t.Fatal(err)
	}
	h := tar.Header{Name: "zeros", Typeflag: tar.TypeReg, Size: 1 << 30}
	if err := tar.NewWriter(z).WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 64 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := skills.Read(&sent); schemas.CodeOf(err) != schemas.Exhausted {
		t.Fatal(err)
	}
}

// TestManifests: what a front matter may and may not be.
func TestManifests(t *testing.T) {
	t.Parallel()
	whole := "\uFEFF---\r\nname: pdf-forms\ndescription: >\n  Fills forms.\n  When asked.\nlicense: Apache-2.0\n" +
		"compatibility: 'needs: python'\n" +
		"metadata:\n  author: someone\n  version: 1.5\n  beta: true\nallowed-tools: Bash(git:*) Read\nmodel: other\n---\n\n# Text\n---\n"
	got, err := skills.ParseManifest([]byte(whole))
	want := schemas.SkillManifest{
		Name: "pdf-forms", Description: "Fills forms. When asked.", License: "Apache-2.0", Compatibility: "needs: python",
		Metadata: map[string]string{"author": "someone", "version": "1.5", "beta": "true"}, AllowedTools: "Bash(git:*) Read",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v %v", got, err)
	}
	m, err := skills.ParseManifest([]byte("---\nname: a\ndescription: b\nallowed-tools:\n - Read\n - Write\n---"))
	if err != nil || m.AllowedTools != "Read Write" {
		t.Fatalf("%+v %v", m, err)
	}
	of := func(name, description string) string {
		return "---\nname: " + name + "\ndescription: " + description + "\n---\n"
	}
	for text, says := range map[string]string{
		"":                                 "no front matter",
		"# A skill\n":                      "no front matter",
		"---\nname: a\ndescription: b\n":   "without an end",
		"---\nname: [\n---\n":              "not YAML",
		"---\njust text\n---\n":            "not YAML",
		"---\n- a\n---\n":                  "not YAML",
		of("a", "b: c: d"):                 "not YAML",
		of("", "b"):                        "name",
		of("a", ""):                        "description",
		of("A", "b"):                       "hyphens",
		of("a_b", "b"):                     "hyphens",
		of("-a", "b"):                      "hyphens",
		of("a-", "b"):                      "hyphens",
		of("a--b", "b"):                    "hyphens",
		of("12", "b"):                      "quotes",
		of("../a", "b"):                    "hyphens",
		of(strings.Repeat("a", 65), "b"):   "longer than 64",
		of("a", strings.Repeat("ä", 1025)): "1025 characters",
		"---\nname: a\ndescription: b\ncompatibility: " + strings.Repeat("c", 501) + "\n---\n": "501 characters",
		"---\nname: a\ndescription: b\nmetadata: [c]\n---\n":                                   "metadata",
		"---\nname: a\ndescription: b\nmetadata: {c: {d: e}}\n---\n":                           "metadata",
		"---\nname: a\nname: b\ndescription: b\n---\n":                                         "not YAML",
		"---\na: &x [1]\nname: a\ndescription: *x\n---\n":                                      "write values out",
		"---\n" + strings.Repeat("a: b\n", 5000) + "---\n":                                     "more than",
		"---\nname: a\ndescription: \"\xff\"\n---\n":                                           "UTF-8",
	} {
		if _, err := skills.ParseManifest([]byte(text)); schemas.CodeOf(err) != schemas.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", text, err, says)
		}
	}
	for _, name := range []string{"a", "0", strings.Repeat("a", 64), "a-b-c", "9-lives"} {
		if _, err := skills.ParseManifest([]byte(of("'"+name+"'", strings.Repeat("ä", 1024)))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzManifest: whatever a SKILL.md is, it is refused or what is read of it is valid.
func FuzzManifest(f *testing.F) {
	for _, s := range []string{manifest, "---\n---", "---\na: &a [*a]\n---", "---\nname: |\n  a\ndescription: >-\n b\nmetadata: {a: 1}\n---"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := skills.ParseManifest(b)
		if err == nil && m.Validate() != nil {
			t.Fatalf("%+v", m)
		}
		if err != nil && schemas.CodeOf(err) != schemas.Invalid {
			t.Fatalf("%v", err)
		}
	})
}

// FuzzRead: whatever is sent, it is refused, or its files are where they may be and it is read again as it was written.
func FuzzRead(f *testing.F) {
	f.Add(packed(f, file("SKILL.md", manifest)))
	f.Add(packed(f, file("pdf/SKILL.md", manifest), file("pdf/a/b", "c")))
	f.Add(zipped(f, packed(f, file("SKILL.md", manifest), file("../a", ""))))
	f.Fuzz(func(t *testing.T, sent []byte) {
		b, err := skills.Read(bytes.NewReader(sent))
		if err != nil {
			if c := schemas.CodeOf(err); c != schemas.Invalid && c != schemas.Exhausted {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, f := range b.Files {
			if path.Clean(f.Path) != f.Path || strings.HasPrefix(f.Path, "/") || strings.HasPrefix(f.Path, "..") ||
				strings.ContainsAny(f.Path, "\x00\n\\") {
				t.Fatalf("%q", f.Path)
			}
		}
		whole, err := b.Tar()
		if err != nil {
			t.Fatal(err)
		}
		parsed, perr := skills.Parse(whole)
		again, err := skills.Read(bytes.NewReader(whole))
		if perr != nil || !reflect.DeepEqual(parsed, again) {
			t.Fatalf("parsed %+v, read %+v: %v", parsed, again, perr)
		}
		if err != nil || len(again.Files) != len(b.Files) || again.Manifest.Name != b.Manifest.Name {
			t.Fatalf("%v", err)
		}
		if twice, err := again.Tar(); err != nil || !bytes.Equal(twice, whole) {
			t.Fatal("the digest changes with each reading")
		}
	})
}
