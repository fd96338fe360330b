package kubetest

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type object = map[string]any

// key identifies an object in the one namespace.
type key struct{ group, resource, name string }

func (k key) of() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.resource}
}

// event is a change of an object.
type event struct {
	version int64
	kind    string // ADDED, MODIFIED, DELETED
	key     key
	object  object
}

const maxEvents = 5000

// clone returns a deep copy.
func clone(o object) object { return runtime.DeepCopyJSON(o) }

// at returns the value at a path; nil if there is none.
func at(o any, path ...string) any {
	for _, p := range path {
		m, ok := o.(object)
		if !ok {
			return nil
		}
		o = m[p]
	}
	return o
}

func text(o any, path ...string) string {
	s, _ := at(o, path...).(string)
	return s
}

func list(o any, path ...string) []any {
	l, _ := at(o, path...).([]any)
	return l
}

// set sets the value at a path, creating the objects on the way to it.
func set(o object, value any, path ...string) {
	for _, p := range path[:len(path)-1] {
		next, ok := o[p].(object)
		if !ok {
			next = object{}
			o[p] = next
		}
		o = next
	}
	o[path[len(path)-1]] = value
}

// put stores an object as a new version and notifies watchers. The lock is held.
func (c *Cluster) put(k key, o object, kind string) {
	c.version++
	set(o, strconv.FormatInt(c.version, 10), "metadata", "resourceVersion")
	if kind == "DELETED" {
		delete(c.objects, k)
	} else {
		c.objects[k] = o
	}
	c.events = append(c.events, event{c.version, kind, k, clone(o)})
	if len(c.events) > maxEvents {
		c.oldest = c.events[0].version
		c.events = slices.Clone(c.events[1:])
	}
	c.notify()
}

// create stores a new object. The lock is held.
func (c *Cluster) create(k key, o object) error {
	if c.objects[k] != nil {
		return apierrors.NewAlreadyExists(k.of(), k.name)
	}
	var uid [16]byte
	_, _ = rand.Read(uid[:]) // never fails
	h := hex.EncodeToString(uid[:])
	set(o, h[:8]+"-"+h[8:12]+"-"+h[12:16]+"-"+h[16:20]+"-"+h[20:], "metadata", "uid")
	set(o, time.Now().UTC().Format(time.RFC3339), "metadata", "creationTimestamp")
	set(o, int64(1), "metadata", "generation")
	if k.resource != "persistentvolumes" && k.resource != "csidrivers" {
		set(o, Namespace, "metadata", "namespace")
	}
	delete(o, "status")
	switch k.resource {
	case "pods":
		set(o, "Pending", "status", "phase")
	case "persistentvolumeclaims":
		set(o, "Bound", "status", "phase")
		if text(o, "spec", "volumeName") != "" {
			set(o, c.binding(o), "status", "phase")
		}
		c.makeVolume(c.volumeOf(o))
	}
	c.put(k, o, "ADDED")
	return nil
}

// update replaces an object by a changed one. The lock is held.
func (c *Cluster) update(k key, o object) error {
	old := c.objects[k]
	switch {
	case old == nil:
		return apierrors.NewNotFound(k.of(), k.name)
	case text(o, "metadata", "uid") != text(old, "metadata", "uid"):
		return apierrors.NewConflict(k.of(), k.name, preconditionError("uid"))
	}
	if sameJSON(old, o) {
		return nil
	}
	if !sameJSON(old["spec"], o["spec"]) {
		generation, _ := at(old, "metadata", "generation").(int64)
		set(o, generation+1, "metadata", "generation")
	}
	c.put(k, o, "MODIFIED")
	return nil
}

// remove deletes an object. A pod stays until its processes have ended, a claim until no pod uses it. The lock is held.
func (c *Cluster) remove(k key) {
	o := c.objects[k]
	if o == nil || at(o, "metadata", "deletionTimestamp") != nil {
		return
	}
	if k.resource == "persistentvolumeclaims" && !c.inUse(k.name) {
		c.dropClaim(k, o)
		return
	}
	if k.resource == "pods" || k.resource == "persistentvolumeclaims" {
		o = clone(o)
		set(o, time.Now().UTC().Format(time.RFC3339), "metadata", "deletionTimestamp")
		c.put(k, o, "MODIFIED")
		return
	}
	c.put(k, clone(o), "DELETED")
}

// inUse reports whether a running pod uses a claim. Such a claim is protected, as by kubernetes.io/pvc-protection.
func (c *Cluster) inUse(claim string) bool {
	for k, o := range c.objects {
		if k.resource != "pods" || c.pods[k.name] == nil || c.pods[k.name].uid != text(o, "metadata", "uid") {
			continue
		}
		if slices.ContainsFunc(list(o, "spec", "volumes"), func(v any) bool { return text(v, "persistentVolumeClaim", "claimName") == claim }) {
			return true
		}
	}
	return false
}

// dropClaim removes a claim and its files. Files in a bucket stay.
func (c *Cluster) dropClaim(k key, o object) {
	c.dropVolume(text(o, "metadata", "uid"))
	c.put(k, clone(o), "DELETED")
}

// merge applies a JSON merge patch and returns the result.
func merge(into, change object) object {
	out := maps.Clone(into)
	if out == nil {
		out = object{}
	}
	for name, value := range change {
		switch v := value.(type) {
		case nil:
			delete(out, name)
		case object:
			old, _ := out[name].(object)
			out[name] = merge(old, v)
		default:
			out[name] = v
		}
	}
	return out
}

func sameJSON(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(x) == string(y)
}

// matches reports whether an object has the labels.
func matches(o object, labels map[string]string) bool {
	for name, value := range labels {
		if text(o, "metadata", "labels", name) != value {
			return false
		}
	}
	return true
}

type preconditionError string

func (e preconditionError) Error() string {
	return "the precondition on " + string(e) + " does not hold"
}
