package kubernetes

import (
	"time"

	"github.com/sandjet/sandjet/providers"
)

// object is a Kubernetes object as the dynamic client takes it: JSON with int64 for whole numbers.
type object = map[string]any

// Where things are in a box.
const (
	container  = "main"
	homePath   = "/home/agent"
	tempPath   = "/tmp"
	runsPath   = "/run/sandjet" // the runner's files, one folder for each run
	uid        = int64(1000)
	runsLimit  = "256Mi"
	graceOfPod = int64(2) // seconds from TERM to KILL of the first process, which reacts to TERM at once
)

// initProgram is process 1: it adopts and reaps what runs leave behind, and ends at once when it is asked to.
const initProgram = `trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done`

// box describes a box that is to be made.
type box struct {
	name, kind string
	key        string // of a kept box
	spec       providers.Spec
	until      time.Time     // when the cluster ends it by itself
	limit      time.Duration // of a box of one run: how long it may live at most
}

func (b box) kept() bool { return b.kind == kindKept }

// hasHome reports whether the box's home outlives its pod.
func (b box) hasHome() bool { return b.kept() && !b.spec.EphemeralHome }

// annotated adds to an object the account of its box and when it expires.
func annotated(b box, o object) object {
	if m, ok := o["metadata"].(object); ok {
		if notes, ok := m["annotations"].(object); ok {
			notes[noteAccount], notes[noteUntil] = string(b.spec.Account), b.until.UTC().Format(time.RFC3339)
		}
	}
	return o
}

// identified adds the same to the anchor object of a box; for a kept one also its key, and the label of its deployment.
func identified(b box, o object) object {
	if m, ok := o["metadata"].(object); ok && b.kept() {
		if labels, ok := m["labels"].(object); ok && b.spec.Deployment != "" {
			labels[labelOf] = b.spec.Deployment
		}
		if notes, ok := m["annotations"].(object); ok {
			notes[noteKey] = b.key
		}
	}
	return annotated(b, o)
}
