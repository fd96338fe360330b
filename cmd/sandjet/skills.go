package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/skills"
)

type skillsCommand struct {
	LS   skillsListCommand   `cmd:"" name:"ls" help:"List skills."`
	Add  skillsAddCommand    `cmd:"" help:"Add folders as skills, or replace those of their names."`
	Show skillsShowCommand   `cmd:"" help:"Show a skill."`
	Get  skillsGetCommand    `cmd:"" help:"Download a skill's files into a folder of its name."`
	RM   skillsRemoveCommand `cmd:"" name:"rm" help:"Remove skills. What is staged in workspaces stays."`
}

// Help returns the detailed help, for kong.
func (*skillsCommand) Help() string {
	return `A skill is a folder with a file SKILL.md that says what it is for and how it is done, in the format of agentskills.io. An agent
that names skills shows its model their names and descriptions, and the tool load_skill, which puts the folder into the workspace.

Examples:
  sandjet skills add ./pdf-forms
  sandjet skills ls
  sandjet agents set writer --skill pdf-forms
  sandjet call --agent writer load_skill pdf-forms
  sandjet skills get pdf-forms /tmp`
}

type skillsListCommand struct{ listTarget }

// Run lists the skills.
func (c *skillsListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Skills().List(ctx)
		if err != nil {
			return err
		}
		return printList(t, list, "No skills.", "NAME\tFILES\tBYTES\tUPDATED\tID*\tDIGEST*\tDESCRIPTION", func(k schemas.SkillDocument) string {
			return fmt.Sprintf("%s\t%d\t%d\t%s\t%s\t%s\t%s", k.Name, k.Files, k.Bytes, ago(k.Updated), k.ID, k.Digest, orDash(short(k.Description)))
		})
	})
}

type skillsAddCommand struct {
	gatewayTarget

	Folders []string `arg:"" name:"folder" type:"existingdir" help:"Folders with a SKILL.md. Files and folders whose names begin with a dot are left out."`
}

// Run uploads the folders.
func (c *skillsAddCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	for _, folder := range c.Folders {
		b, left, err := readSkill(folder)
		if err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		tar, err := b.Tar()
		if err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		k, err := cl.Skills().Put(ctx, b.Manifest.Name, tar)
		if err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		if left > 0 {
			fmt.Fprintf(t.err, "sandjet: %s: %s that begin with a dot left out\n", printable(folder), count(left, "name"))
		}
		if t.json {
			if err := printJSON(t.out, k); err != nil {
				return err
			}
			continue
		}
		err = say(t, "Skill %s is stored: %s, %s, digest %.12s.", k.Name, count(k.Files, "file"), count(int(k.Bytes), "byte"), k.Digest)
		if err != nil {
			return err
		}
	}
	return nil
}

// readSkill reads a folder as a skill, without entries whose names begin with a dot, and returns how many of those it has left out.
func readSkill(folder string) (b skills.Bundle, left int, err error) {
	folder, err = filepath.Abs(folder)
	if err != nil {
		return b, 0, fmt.Errorf("find the folder: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return b, 0, fmt.Errorf("open the folder: %w", err)
	}
	defer func() { _ = root.Close() }() // it was only read
	var files []skills.File
	var size int64
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != "." && strings.HasPrefix(d.Name(), ".") {
			left++
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return schemas.Invalidf("bundle", "%q is neither a file nor a folder: links and devices are refused", schemas.Quotable(path))
		case info.Size() > schemas.MaxSkillFile:
			return schemas.Errorf(schemas.Exhausted, "%q is larger than %d bytes", schemas.Quotable(path), schemas.MaxSkillFile)
		case len(files) >= schemas.MaxSkillFiles || size > schemas.MaxSkillBundle:
			return schemas.Errorf(schemas.Exhausted, "the folder has more than %d files or %d bytes",
				schemas.MaxSkillFiles, schemas.MaxSkillBundle)
		}
		content, err := root.ReadFile(path)
		if err != nil {
			return err
		}
		size += int64(len(content))
		// Below the folder's name, so that skills.New compares that with the name in SKILL.md.
		files = append(files, skills.File{
			Path: filepath.Base(folder) + "/" + filepath.ToSlash(path), Content: content, Executable: info.Mode()&0o100 != 0,
		})
		return nil
	})
	if err != nil {
		return b, 0, err
	}
	if !slices.ContainsFunc(files, func(f skills.File) bool { return f.Path == filepath.Base(folder)+"/"+skills.FileName }) {
		return b, 0, schemas.Invalidf(skills.FileName, "is missing: a skill is a folder with this file, written so")
	}
	b, err = skills.New(files)
	return b, left, err
}

type skillsShowCommand struct {
	gatewayTarget

	ID string `arg:"" name:"skill" help:"Skill (id or name)."`
}

// Run shows a skill.
func (c *skillsShowCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	k, err := cl.Skills().Get(ctx, c.ID)
	return printRecord(t, k, err)
}

type skillsGetCommand struct {
	gatewayTarget

	ID string `arg:"" name:"skill" help:"Skill (id or name)."`
	To string `arg:"" optional:"" default:"." help:"Folder in which the skill's own is made. Default: this folder."`
}

// Run downloads a skill's files.
func (c *skillsGetCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	var tar bytes.Buffer
	if _, err := cl.Skills().Download(ctx, c.ID, &tar); err != nil {
		return err
	}
	b, err := skills.Read(&tar) // a server's paths are not trusted, as they name files of this host
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.To, 0o750); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	to := filepath.Join(c.To, b.Manifest.Name)
	if err := os.Mkdir(to, 0o750); errors.Is(err, fs.ErrExist) {
		return schemas.Errorf(schemas.Conflict, "%s is there already: remove it, or name another folder", printable(to))
	} else if err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return fmt.Errorf("open the folder: %w", err)
	}
	defer func() { _ = root.Close() }() // files are closed when they are written
	for _, f := range b.Files {
		if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(f.Path)), 0o750); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		if err := root.WriteFile(filepath.FromSlash(f.Path), f.Content, fs.FileMode(skills.Mode(f.Executable))); err != nil {
			return fmt.Errorf("write a file: %w", err)
		}
	}
	if t.json {
		return printJSON(t.out, map[string]any{"path": to, "files": len(b.Files)})
	}
	return say(t, "Saved %s, %s.", printable(to), count(len(b.Files), "file"))
}

type skillsRemoveCommand struct {
	gatewayTarget

	IDs []string `arg:"" name:"skill" help:"Skills (ids or names)."`
}

// Run removes skills.
func (c *skillsRemoveCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	for _, id := range c.IDs {
		if err := printRemoved(t, id, cl.Skills().Remove(ctx, id)); err != nil {
			return fmt.Errorf("%s: %w", printable(id), err)
		}
	}
	return nil
}
