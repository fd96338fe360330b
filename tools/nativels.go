package tools

import (
	"container/heap"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

func (t ls) run(ctx context.Context, root workspacefs.FS) (answer, error) {
	info, err := root.Stat(ctx, t.name)
	if err != nil {
		return answer{}, fmt.Errorf("ls: %w", err)
	}
	if !info.IsDir() {
		return answer{word: wordNotDirectory}, nil
	}
	first := firstEntries{most: t.most}
	err = root.ReadDir(ctx, t.name, true, func(e workspacefs.Entry) error {
		if strings.Contains(e.Name, "\n") {
			return nil
		}
		first.add(e)
		return ctx.Err()
	})
	if err != nil {
		return answer{}, fmt.Errorf("ls: %w", err)
	}
	slices.SortFunc(first.list, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	var out []byte
	for _, e := range first.list {
		out = append(append(out, e.line...), '\n')
	}
	return answer{word: wordOK, numbers: []int64{first.total}, parts: [][]byte{out[:min(len(out), listedBytes)]}}, nil
}

// listed is an entry with its line in the answer.
type listed struct{ name, line string }

// firstEntries collects the entries that are first in the order of names. It is a heap whose root is the last of them, so that a folder of
// any size needs the memory of one answer only.
type firstEntries struct {
	most  int
	total int64
	list  []listed
}

func (h *firstEntries) Len() int           { return len(h.list) }
func (h *firstEntries) Less(i, j int) bool { return h.list[i].name > h.list[j].name }
func (h *firstEntries) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }

// Push implements heap.Interface.
func (h *firstEntries) Push(x any) {
	if e, ok := x.(listed); ok {
		h.list = append(h.list, e)
	}
}

// Pop implements heap.Interface.
func (h *firstEntries) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}

func (h *firstEntries) add(e workspacefs.Entry) {
	h.total++
	if len(h.list) == h.most && e.Name > h.list[0].name {
		return // it is not among the first
	}
	line, ok := lineOf(e)
	if !ok {
		h.total--
		return
	}
	heap.Push(h, listed{e.Name, line})
	if len(h.list) > h.most {
		heap.Pop(h)
	}
}

// lineOf returns the line of an entry in the answer; ok is false if the entry is gone.
func lineOf(e workspacefs.Entry) (line string, ok bool) {
	info, err := e.Info()
	if err != nil {
		return "", false
	}
	mode := 0
	switch {
	case e.Type.IsRegular():
		mode = modeFile
	case e.Type.IsDir():
		mode = modeDirectory
	case e.Type&fs.ModeSymlink != 0:
		mode = modeLink
	}
	at := "-"
	if !info.ModTime.IsZero() {
		at = strconv.FormatInt(info.ModTime.Unix(), 10)
	}
	return fmt.Sprintf("%x %d %s %s", mode, info.Size, at, e.Name), true
}
