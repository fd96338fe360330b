package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// Seen is an entry of the workspace as listed.
type Seen struct {
	Info workspacefs.Info
	Type fs.FileMode // type bits
	// Sum is the SHA-256 of the content in hexadecimal digits, where it was known; else empty.
	Sum string
	// Fresh says that the entry was changed so shortly before the look that another change may not show in its times.
	Fresh bool
}

// Look is the listing of the places for artifacts at one time.
type Look struct {
	// Found are entries by their paths, directories left out.
	Found map[string]Seen
	// Beyond are places in which there is more than is looked at. What was found there says nothing.
	Beyond []string
	// Since stands for an earlier state that was not recorded: what was changed at that time or later has changed. Zero: it was recorded.
	Since time.Time
}

// freshness is how coarse the times of a file system may be.
const freshness = 2 * time.Second

// Places are where artifacts are looked for: the folder [schemas.OutputsFolder], and what patterns name.
type Places []schemas.ArtifactPattern

// Look lists the places, within the memory of m; nil: no bound. A missing place costs one request. The error is that of ctx, or of the
// file system.
func (p Places) Look(ctx context.Context, fsys workspacefs.FS, m *CallMemory) (Look, error) {
	l := looker{fsys: fsys, look: Look{Found: map[string]Seen{}}, left: schemas.MaxArtifactsSeen, memory: m}
	places := p.all()
	if w, ok := fsys.(workspacefs.TreesWalker); ok {
		if err := l.atOnce(ctx, w, places); err != nil {
			return Look{}, err
		}
		return l.look, nil
	}
	for n, at := range places {
		if n == 1 {
			l.left = schemas.MaxArtifactsSeen // together
		}
		if err := l.place(ctx, at); err != nil {
			return Look{}, err
		}
	}
	return l.look, nil
}

// all returns the folder for outputs, and then the folders of the patterns.
func (p Places) all() []place {
	places := []place{{Tree: workspacefs.Tree{Folder: schemas.OutputsFolder, Depth: -1, Hidden: true}, matches: func(string) bool { return true }}}
	for _, g := range p {
		at := place{Tree: workspacefs.Tree{Hidden: g.Hidden()}, matches: g.Matches}
		at.Folder, at.Depth = g.Reach()
		places = append(places, at)
	}
	return places
}

// nameBytes is about how long a path is: looking by runs has memory for so many bytes of each of its entries.
const nameBytes = 64

// atOnce lists all places by one walk. Places in the same tree are visited once.
func (l *looker) atOnce(ctx context.Context, w workspacefs.TreesWalker, places []place) error {
	var trees []workspacefs.Tree
	of := map[workspacefs.Tree][]place{}
	for _, p := range places {
		if of[p.Tree] == nil {
			trees = append(trees, p.Tree)
		}
		of[p.Tree] = append(of[p.Tree], p)
	}
	beyond, at := make([]bool, len(trees)), 0
	visit := func(tree int, below string, e workspacefs.Entry) error {
		if at != tree {
			if at == 0 {
				l.left = schemas.MaxArtifactsSeen // of the patterns together
			}
			at = tree
		}
		full := path.Join(trees[tree].Folder, below)
		if beyond[tree] || strings.HasPrefix(full, path.Dir(schemas.UploadsFolder)+"/") {
			return nil
		}
		l.left--
		matches := slices.ContainsFunc(of[trees[tree]], func(p place) bool { return p.matches(full) })
		_, seen := l.look.Found[full]
		switch {
		case l.left < 0, matches && !seen && !l.hold(full):
			beyond[tree] = true
		case matches:
			l.entry(full, e)
		}
		return nil
	}
	whole, err := w.WalkTrees(ctx, trees, workspacefs.Bounds{
		Entries: schemas.MaxArtifactsSeen + 1, Bytes: schemas.MaxArtifactsSeen * nameBytes,
	}, visit)
	if err != nil {
		return fmt.Errorf("walk the places: %w", err)
	}
	for n, t := range trees {
		if beyond[n] || !whole[n] {
			l.look.Beyond = append(l.look.Beyond, t.Folder)
		}
	}
	return nil
}

type looker struct {
	fsys workspacefs.FS
	look Look
	left int // entries

	memory *CallMemory
	bytes  int64 // that it counts for
}

// entryBytes is about what an entry takes in memory beside its name.
const entryBytes = 256

// hold reserves memory for a name. It returns false if there is none left.
func (l *looker) hold(name string) bool {
	n := int64(len(name) + entryBytes)
	if l.memory == nil {
		return true
	}
	if l.bytes+n > LookBytes || !l.memory.grow(n) {
		return false
	}
	l.bytes += n
	return true
}

var errBeyond = errors.New("more entries than are looked at")

// place is a folder to list.
type place struct {
	workspacefs.Tree

	matches func(path string) bool
}

// place lists one place.
func (l *looker) place(ctx context.Context, p place) error {
	type folder struct {
		name  string
		depth int
	}
	if inside, err := l.noLinks(ctx, p.Folder); err != nil || !inside {
		return err
	}
	for todo := []folder{{p.Folder, 0}}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		err := l.fsys.ReadDir(ctx, at.name, false, func(e workspacefs.Entry) error {
			full := path.Join(at.name, e.Name)
			if l.left--; l.left < 0 {
				return errBeyond
			}
			switch {
			case full == path.Dir(schemas.UploadsFolder), strings.HasPrefix(e.Name, ".") && !p.Hidden:
				return nil
			case e.Type.IsDir():
				if p.Depth < 0 || at.depth < p.Depth {
					if !l.hold(full) {
						return errBeyond
					}
					todo = append(todo, folder{full, at.depth + 1})
				}
				return nil
			}
			if !p.matches(full) {
				return nil
			}
			if _, seen := l.look.Found[full]; !seen && !l.hold(full) {
				return errBeyond
			}
			l.entry(full, e)
			return nil
		})
		switch {
		case errors.Is(err, errBeyond):
			l.look.Beyond = append(l.look.Beyond, p.Folder)
			return nil
		case err != nil && (ctx.Err() != nil || workspacefs.CodeOf(err) == ""):
			return err
		} // else the folder is not there, is a link, or may not be read
	}
	return nil
}

// noLinks reports whether no parent of a folder is a link.
func (l *looker) noLinks(ctx context.Context, folder string) (bool, error) {
	for above := path.Dir(folder); above != "."; above = path.Dir(above) {
		switch err := l.fsys.ReadDir(ctx, above, false, func(workspacefs.Entry) error { return fs.SkipAll }); {
		case err == nil, errors.Is(err, fs.SkipAll):
		case ctx.Err() != nil, workspacefs.CodeOf(err) == "":
			return false, err
		default:
			return false, nil
		}
	}
	return true, nil
}

func (l *looker) entry(full string, e workspacefs.Entry) {
	info, err := e.Info()
	if err != nil {
		return // it has just gone
	}
	changed := info.Changed
	if changed.IsZero() {
		changed = info.ModTime
	}
	l.look.Found[full] = Seen{Info: info, Type: e.Type.Type(), Fresh: time.Since(changed) < freshness}
}
