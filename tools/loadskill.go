package tools

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/skills"
)

const (
	// skillPart is the size of the part of a bundle that one run carries: with base64 and the script it is below the input limit of any
	// provider.
	skillPart = 3 << 20
	// stageOld is the age at which temporary folders of attempts that died are removed.
	stageOld    = time.Hour
	stagePrefix = ".sandjet-stage-"
)

// describeSkills describes load_skill with a list of the skills, so that a model knows them without asking.
func describeSkills(list []schemas.SkillSummary) input {
	var b strings.Builder
	b.WriteString("Loads a skill: instructions, scripts and references for a kind of task, written by people who know it. " +
		"Load one before you begin such a task. The result is its SKILL.md; its files are then in the workspace, in " +
		schemas.SkillsFolder + "/NAME, and paths in it are relative to that folder.\n\n<available_skills>\n")
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = k.Name
		b.WriteString("  <skill>\n    <name>" + escaped(k.Name) + "</name>\n    <description>" + escaped(k.Description) +
			"</description>\n  </skill>\n")
	}
	b.WriteString("</available_skills>")
	return input{b.String(), map[string]property{"name": oneOf("The name of the skill.", "", names)}}
}

// escaped returns text that cannot end the XML element around it.
func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder accepts everything
	return strings.NewReplacer("&#xA;", " ", "&#xD;", " ", "&#x9;", " ").Replace(b.String())
}

// SkillData is the structured result of load_skill.
type SkillData struct {
	Name   string `json:"name"`
	Path   string `json:"path"` // folder with its files
	Digest string `json:"digest"`
	// Staged reports that this call stored the files; false: they were there already.
	Staged bool `json:"staged"`
}

// SkillStage stores a skill in a workspace, in the two folders where programs look for skills. The skill is written to a temporary folder,
// which then replaces the former one in one step, with a mark that identifies it. A process that dies leaves the former skill or none, and
// the next call repeats everything. Any number of processes may do this at the same time.
type SkillStage struct {
	Call   schemas.Call
	Digest string
	Tar    []byte
	Bundle skills.Bundle
	// Token identifies this attempt: letters and digits.
	Token string
	// At is called when the skill is in its temporary folder, and again after the former one was moved away. If it returns an error,
	// staging ends there. It may be nil.
	At func() error
}

// loadSkill makes the text of the result of staging.
type loadSkill struct {
	place
	stage SkillStage
}

func (s SkillStage) folder() string { return schemas.SkillsFolder + "/" + s.Bundle.Manifest.Name }

func (s SkillStage) tool() loadSkill {
	return loadSkill{place: place{name: s.folder(), deep: dialect(s.Call.Dialect).deep()}, stage: s}
}

func (t loadSkill) present(a answer) outcome {
	switch a.word {
	case wordOK:
	case wordExists:
		return outcome{err: &schemas.Error{Code: schemas.Conflict, Message: fmt.Sprintf(
			"%s is in the workspace already and not of this skill: move it away, then load the skill again", t)}}
	default:
		return outcome{err: failure(a.word, "folder", t.String())}
	}
	data := SkillData{Name: t.stage.Bundle.Manifest.Name, Path: t.String(), Digest: t.stage.Digest, Staged: a.number(0) == 0}
	text := string(t.stage.Bundle.Skill())
	const most = maxPage
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("\n[%d bytes are shown; read the rest in %s/%s]", most, t, skills.FileName)
	}
	files := plural(int64(len(t.stage.Bundle.Files)), "file")
	return outcome{text: fmt.Sprintf("The skill %s is in %s (%s).\n\n%s", data.Name, data.Path, files, text), data: data}
}

// Plans returns the runs that stage the skill if commands alone can access the files, one after the other. The first checks whether the
// skill is there already, which [SkillStage.Done] reports. Each plan is created when it is needed, as it takes some megabytes.
func (s SkillStage) Plans() iter.Seq[Plan] {
	parts := (len(s.Tar) + skillPart - 1) / skillPart
	plan := func(part string, last bool, payload []byte) Plan {
		var size int64
		for _, f := range s.Bundle.Files {
			size += int64(len(f.Content))
		}
		b := fmt.Appendf(nil, "%s\n%s\n%s\n%d %d\n%s %d\n", s.Bundle.Manifest.Name, s.Digest, s.Token, len(s.Bundle.Files), size,
			part, number(last))
		b = append(base64.StdEncoding.AppendEncode(b, payload), '\n')
		return Plan{
			Script: prelude + stageScript, Stdin: b, OutputLimit: schemas.MaxOutputLimit, call: s.Call, tool: s.tool(),
		}
	}
	return func(yield func(Plan) bool) {
		if parts > 1 && !yield(plan("-", false, nil)) {
			return
		}
		for i := range parts {
			if !yield(plan(fmt.Sprintf("%05d", i), i == parts-1, s.Tar[i*skillPart:min((i+1)*skillPart, len(s.Tar))])) {
				return
			}
		}
	}
}

// SkillBytes returns about how much memory it takes to stage a skill whose tar has size bytes: the tar, of which the files are slices, and
// one run with its input, or one file that is compared.
func SkillBytes(size int64) int64 {
	const copies = 3 // of a part: as base64, during the encoding, and on its way to the sandbox
	return size + copies*min(size, schemas.MaxSkillFile)
}

// Done reports whether no further run is needed: the run has failed, or the skill was there already.
func (SkillStage) Done(r schemas.Result) bool {
	data, ok := r.Output.Data.(SkillData)
	return r.Status != schemas.StatusCompleted || !ok || !data.Staged
}

// RunNative stages the skill in this process, over the workspace's file system. The error is that of ctx, or a failure of the file system.
func (s SkillStage) RunNative(ctx context.Context, root workspacefs.FS) (schemas.Result, error) {
	began := time.Now()
	a := answer{word: wordOK, numbers: []int64{1}}
	for _, dir := range []string{schemas.SkillsFolder, schemas.OtherSkillsFolder} {
		staged, err := s.into(ctx, root, dir)
		if workspacefs.CodeOf(err) == workspacefs.ErrExists && dir == schemas.OtherSkillsFolder {
			continue // a folder of the user
		}
		if err != nil {
			w, ok := wordOf(err)
			if e, is := errors.AsType[*schemas.Error](err); is {
				return schemas.Result{}, e
			}
			if !ok || ctx.Err() != nil {
				return schemas.Result{}, fmt.Errorf("stage the skill: %w", err)
			}
			a.word = w
			break
		}
		if staged {
			a.numbers[0] = 0
		}
	}
	r := schemas.Result{
		Call: s.Call.ID, Conversation: s.Call.Conversation, Tool: s.Call.Tool, Status: schemas.StatusCompleted,
		Output: &schemas.Output{OK: true, Runtime: "native", DurationMS: time.Since(began).Milliseconds()},
	}
	settle(&r, s.tool().present(a))
	return r, nil
}

// into stages the skill below a folder. Error [workspacefs.ErrExists]: a folder of the user has its name.
func (s SkillStage) into(ctx context.Context, root workspacefs.FS, dir string) (staged bool, err error) {
	target := dir + "/" + s.Bundle.Manifest.Name
	aside, former := dir+"/"+stagePrefix+s.Token+".new", dir+"/"+stagePrefix+s.Token+".old"
	if is, err := s.whole(ctx, root, target); is || err != nil {
		return false, err
	}
	if err := root.MkdirAll(ctx, dir); err != nil {
		return false, err
	}
	if err := removeOld(ctx, root, dir); err != nil {
		return false, err
	}
	if err := s.write(ctx, root, aside); err != nil {
		return false, errors.Join(err, removeAll(context.WithoutCancel(ctx), root, aside))
	}
	if err := s.at(); err != nil {
		return false, err
	}
	for try := 0; ; try++ {
		err := root.Rename(ctx, aside, target)
		if err == nil {
			return true, nil
		}
		if code := workspacefs.CodeOf(err); try == 10 || code != workspacefs.ErrExists && code != workspacefs.ErrIsDirectory &&
			code != workspacefs.ErrNotEmpty {
			return false, errors.Join(err, removeAll(ctx, root, aside))
		}
		if is, err := s.whole(ctx, root, target); is || err != nil { // another process was faster, or it is a folder of the user
			return false, errors.Join(err, removeAll(ctx, root, aside))
		}
		err = root.Rename(ctx, target, former)
		if err != nil && workspacefs.CodeOf(err) != workspacefs.ErrNotFound {
			return false, errors.Join(err, removeAll(ctx, root, aside))
		}
		if err := s.at(); err != nil {
			return false, err
		}
		if err := removeAll(ctx, root, former); err != nil {
			return false, err
		}
	}
}

func (s SkillStage) at() error {
	if s.At == nil {
		return nil
	}
	return s.At()
}

// whole reports whether a folder is identical to the skill. Error [workspacefs.ErrExists]: it was not staged by Sandjet.
func (s SkillStage) whole(ctx context.Context, root workspacefs.FS, target string) (bool, error) {
	info, err := root.Stat(ctx, target)
	if workspacefs.CodeOf(err) == workspacefs.ErrNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	mark, _, err := workspacefs.ReadFile(ctx, root, target+"/"+schemas.SkillMark, 128)
	switch code := workspacefs.CodeOf(err); {
	case !info.IsDir(), code == workspacefs.ErrNotFound:
		return false, workspacefs.ErrExists
	case err != nil && code == "":
		return false, err
	case err != nil || strings.TrimSpace(string(mark)) != s.Digest:
		return false, nil //nolint:nilerr // what cannot be read is not the skill
	}
	for _, f := range s.Bundle.Files {
		content, _, err := workspacefs.ReadFile(ctx, root, target+"/"+f.Path, int64(len(f.Content)))
		if err != nil && workspacefs.CodeOf(err) == "" {
			return false, err
		}
		if err != nil || !bytes.Equal(content, f.Content) {
			return false, nil //nolint:nilerr // likewise
		}
	}
	return true, nil
}

// moder is a file system that supports changing the modes of files.
type moder interface {
	SetMode(ctx context.Context, name string, mode fs.FileMode) error
}

// write creates the skill's folder with read-only files, and its mark.
func (s SkillStage) write(ctx context.Context, root workspacefs.FS, dir string) error {
	for _, f := range s.Bundle.Files {
		name := dir + "/" + f.Path
		if err := root.Write(ctx, name, f.Content, workspacefs.Create, nil); err != nil {
			return err
		}
		if m, ok := root.(moder); ok {
			const reads = 0o555
			if err := m.SetMode(ctx, name, fs.FileMode(skills.Mode(f.Executable))&reads); err != nil {
				return err
			}
		}
	}
	return root.Write(ctx, dir+"/"+schemas.SkillMark, []byte(s.Digest+"\n"), workspacefs.Create, nil)
}

// removeOld removes the temporary folders of attempts that died.
func removeOld(ctx context.Context, root workspacefs.FS, dir string) error {
	var old []string
	err := root.ReadDir(ctx, dir, true, func(e workspacefs.Entry) error {
		if !strings.HasPrefix(e.Name, stagePrefix) {
			return nil
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime) > stageOld {
			old = append(old, e.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := removeAll(ctx, root, dir+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes a folder with its content. Entries that disappear meanwhile are no error.
func removeAll(ctx context.Context, root workspacefs.FS, dir string) error {
	var files, folders []string
	folders = append(folders, dir)
	err := workspacefs.Walk(ctx, root, dir, workspacefs.Bounds{Entries: 100_000, Bytes: 16 << 20}, func(p string, e workspacefs.Entry) error {
		if e.Type.IsDir() {
			folders = append(folders, path.Join(dir, p))
		} else {
			files = append(files, path.Join(dir, p))
		}
		return nil
	})
	if workspacefs.CodeOf(err) == workspacefs.ErrNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(folders) { // a folder's content is removed before the folder
		files = append(files, name)
	}
	for _, name := range files {
		if err := root.Remove(ctx, name); err != nil && workspacefs.CodeOf(err) != workspacefs.ErrNotFound {
			return err
		}
	}
	return nil
}

// NoSuchSkill returns the error for an unknown skill, with the names of the known ones.
func NoSuchSkill(name string, list []schemas.Skill) error {
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = k.Name
	}
	known := "there are none"
	if len(names) > 0 {
		known = "use one of " + strings.Join(names, ", ")
	}
	return &schemas.Error{
		Code: schemas.NotFound, Field: "input.name", Message: "there is no skill " + strconv.Quote(schemas.Quotable(name)) + ": " + known,
	}
}
