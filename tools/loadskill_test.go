package tools_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/skills"
	"github.com/sandjet/sandjet/tools"
)

// stageOf returns the staging of a skill that has this text in SKILL.md, two files more, and those of more.
func stageOf(t *testing.T, text string, more ...skills.File) tools.SkillStage {
	t.Helper()
	b, err := skills.New(append(more,
		skills.File{Path: "SKILL.md", Content: []byte("---\nname: pdf\ndescription: d\n---\n" + text)},
		skills.File{Path: "scripts/fill it.sh", Content: []byte("#!/bin/sh\n"), Executable: true},
		skills.File{Path: "data.bin", Content: []byte("\x00\xff\n")}))
	if err != nil {
		t.Fatal(err)
	}
	tar, err := b.Tar()
	if err != nil {
		t.Fatal(err)
	}
	return tools.SkillStage{
		Call: schemas.Call{ID: "call_1", Tool: schemas.ToolLoadSkill}, Digest: skills.Digest(tar), Tar: tar, Bundle: b,
		Token: fmt.Sprintf("%016x", rand.Uint64()),
	}
}

// stagingWays are the two ways to stage a skill in a folder.
func stagingWays() map[string]func(t *testing.T, dir string, s tools.SkillStage) schemas.Result {
	return map[string]func(*testing.T, string, tools.SkillStage) schemas.Result{
		"native": func(t *testing.T, dir string, s tools.SkillStage) schemas.Result {
			t.Helper()
			root, err := safefs.Open(dir, safefs.Options{})
			if err != nil {
				t.Error(err)
				return schemas.Result{}
			}
			defer func() { _ = root.Close() }()
			r, err := s.RunNative(t.Context(), root)
			if err != nil {
				t.Error(err)
			}
			return r
		},
		"script": func(t *testing.T, dir string, s tools.SkillStage) (r schemas.Result) {
			t.Helper()
			for p := range s.Plans() {
				cmd := exec.CommandContext(t.Context(), "sh", "-c", p.Script)
				cmd.Dir, cmd.Stdin = dir, strings.NewReader(string(p.Stdin))
				var stderr strings.Builder
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil {
					t.Errorf("%v: %s", err, stderr.String())
				}
				if r = p.Render(providers.Result{Stdout: out, Stderr: []byte(stderr.String())}); s.Done(r) {
					break
				}
			}
			return r
		},
	}
}

// lies checks that both skills folders have the skill, with the right contents and modes, and nothing else, such as what an aborted
// staging leaves.
func lies(t *testing.T, dir string, s tools.SkillStage) {
	t.Helper()
	for _, top := range []string{schemas.SkillsFolder, schemas.OtherSkillsFolder} {
		names, err := os.ReadDir(filepath.Join(dir, top))
		if err != nil || len(names) != 1 || names[0].Name() != "pdf" {
			t.Fatalf("%s has %v, %v", top, names, err)
		}
		for _, f := range s.Bundle.Files {
			at := filepath.Join(dir, top, "pdf", f.Path)
			content, err := os.ReadFile(at)
			info, ierr := os.Stat(at)
			if err != nil || ierr != nil || string(content) != string(f.Content) {
				t.Fatalf("%s: %q, %v", at, content, err)
			}
			if mode := info.Mode().Perm(); mode&0o222 != 0 || mode&0o100 != 0 != f.Executable {
				t.Errorf("%s has mode %o", at, mode)
			}
		}
	}
}

func staged(t *testing.T, r schemas.Result) bool {
	t.Helper()
	if r.Status != schemas.StatusCompleted {
		t.Fatalf("%s: %s", r.Status, r.Text)
	}
	d, ok := r.Output.Data.(tools.SkillData)
	if !ok || d.Path != ".agents/skills/pdf" || !strings.Contains(r.Text, "name: pdf") {
		t.Fatalf("%+v\n%s", r.Output.Data, r.Text)
	}
	return d.Staged
}

// TestSkillsAreStaged: a skill is staged once, replaced by another version, and repaired if one of its files was changed. A folder without
// Sandjet's mark belongs to the user and is never replaced.
func TestSkillsAreStaged(t *testing.T) {
	t.Parallel()
	for name, stage := range stagingWays() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first := stageOf(t, "one", skills.File{Path: "gone/later", Content: []byte("x")})
			if !staged(t, stage(t, dir, first)) {
				t.Error("the first was there already")
			}
			lies(t, dir, first)
			if staged(t, stage(t, dir, stageOf(t, "one", skills.File{Path: "gone/later", Content: []byte("x")}))) {
				t.Error("the same was put there again")
			}
			second := stageOf(t, "two")
			if !staged(t, stage(t, dir, second)) {
				t.Error("another digest was not put there")
			}
			lies(t, dir, second)
			if _, err := os.Stat(filepath.Join(dir, schemas.SkillsFolder, "pdf/gone")); !errors.Is(err, fs.ErrNotExist) {
				t.Error("a file of the former skill is still there")
			}
			if err := os.Remove(filepath.Join(dir, schemas.SkillsFolder, "pdf/data.bin")); err != nil {
				t.Fatal(err)
			}
			if !staged(t, stage(t, dir, stageOf(t, "two"))) {
				t.Error("what was taken away was not put back")
			}
			lies(t, dir, second)
			// What lacks the mark belongs to the user.
			if err := os.Remove(filepath.Join(dir, schemas.OtherSkillsFolder, "pdf", schemas.SkillMark)); err != nil {
				t.Fatal(err)
			}
			third := stageOf(t, "three")
			staged(t, stage(t, dir, third))
			b, err := os.ReadFile(filepath.Join(dir, schemas.OtherSkillsFolder, "pdf/SKILL.md"))
			if err != nil || !strings.HasSuffix(string(b), "two") {
				t.Errorf("somebody's own folder was replaced: %q %v", b, err)
			}
			if err := os.Remove(filepath.Join(dir, schemas.SkillsFolder, "pdf", schemas.SkillMark)); err != nil {
				t.Fatal(err)
			}
			if r := stage(t, dir, stageOf(t, "four")); r.Status != schemas.StatusFailed || r.Error.Code != schemas.Conflict {
				t.Errorf("%s: %s", r.Status, r.Text)
			}
		})
	}
}

// TestSkillsAreStagedByManyAtOnce: if a skill is staged several times at the same time, all stagings succeed, and the skill is complete
// afterwards.
func TestSkillsAreStagedByManyAtOnce(t *testing.T) {
	t.Parallel()
	for name, stage := range stagingWays() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var all sync.WaitGroup
			for range 6 {
				s := stageOf(t, "same")
				all.Go(func() {
					if r := stage(t, dir, s); r.Status != schemas.StatusCompleted {
						t.Errorf("%s: %s", r.Status, r.Text)
					}
				})
			}
			all.Wait()
			lies(t, dir, stageOf(t, "same"))
		})
	}
}

// TestALargeSkillComesInSeveralRuns: a large skill is staged by several scripts, each with a part. As long as a part is missing, the skill
// is not in its folder.
func TestALargeSkillComesInSeveralRuns(t *testing.T) {
	t.Parallel()
	content := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{64}).Read(content)
	s := stageOf(t, "large", skills.File{Path: "large.bin", Content: content})
	plans := slices.Collect(s.Plans())
	if len(plans) != 3 || slices.ContainsFunc(plans, func(p tools.Plan) bool { return len(p.Stdin) > 5<<20 }) {
		t.Fatalf("%d runs", len(plans))
	}
	dir := t.TempDir()
	half := exec.CommandContext(t.Context(), "sh", "-c", plans[1].Script)
	half.Dir, half.Stdin = dir, strings.NewReader(string(plans[1].Stdin))
	if out, err := half.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, schemas.SkillsFolder, "pdf")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("half a skill is there")
	}
	if !staged(t, stagingWays()["script"](t, dir, s)) {
		t.Error("it was there already")
	}
	lies(t, dir, s)
}

// TestStagingIsKilled: a staging that dies at any of its steps leaves no incomplete skill that is marked as complete, and the next staging
// succeeds.
func TestStagingIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := safefs.Open(dir, safefs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	former := stageOf(t, "former")
	if _, err := former.RunNative(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	died := errors.New("died")
	for step := range 4 { // aside and out of the way, at both places
		s := stageOf(t, fmt.Sprint("step ", step))
		n := 0
		s.At = func() error {
			if n++; n > step {
				return died
			}
			return nil
		}
		_, _ = s.RunNative(context.Background(), root)
		if n <= step {
			t.Fatalf("it was asked %d times", n)
		}
		if b, err := os.ReadFile(filepath.Join(dir, schemas.SkillsFolder, "pdf", schemas.SkillMark)); err == nil {
			if _, err := os.Stat(filepath.Join(dir, schemas.SkillsFolder, "pdf/SKILL.md")); err != nil {
				t.Errorf("half a skill is marked as %s", b)
			}
		}
		s.At, s.Token = nil, s.Token+"x"
		if r, err := s.RunNative(t.Context(), root); err != nil || r.Status != schemas.StatusCompleted {
			t.Fatalf("step %d: %v %s", step, err, r.Text)
		}
		if b, err := os.ReadFile(filepath.Join(dir, schemas.SkillsFolder, "pdf/SKILL.md")); err != nil || string(b) != string(s.Bundle.Skill()) {
			t.Errorf("step %d: %v", step, err)
		}
	}
}

// TestThePanelOfSkills: names and descriptions cannot end their elements, and without skills there is no tool.
func TestThePanelOfSkills(t *testing.T) {
	t.Parallel()
	list, err := tools.Visible("", schemas.ToolVisibility{Tools: schemas.Tools(), Skills: []schemas.SkillSummary{
		{Name: "pdf", Description: "Fills <b>forms</b> & more\nnow </description></skill>"}, {Name: "xls", Description: "Tables."},
	}})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(d tools.Definition) bool { return d.Name == schemas.ToolLoadSkill })
	if i < 0 {
		t.Fatal("it is not offered")
	}
	for _, want := range []string{
		"<name>pdf</name>", "Fills &lt;b&gt;forms&lt;/b&gt; &amp; more now &lt;/description&gt;&lt;/skill&gt;</description>", "<name>xls</name>",
	} {
		if !strings.Contains(list[i].Description, want) {
			t.Errorf("%q is not in:\n%s", want, list[i].Description)
		}
	}
	if strings.Count(list[i].Description, "</skill>") != 2 || !strings.Contains(string(list[i].InputSchema), `"enum":["pdf","xls"]`) {
		t.Errorf("%s", list[i].InputSchema)
	}
	list, err = tools.Visible("", schemas.ToolVisibility{Tools: schemas.Tools()})
	if err != nil || slices.ContainsFunc(list, func(d tools.Definition) bool { return d.Name == schemas.ToolLoadSkill }) {
		t.Error("it is offered without skills")
	}
}
