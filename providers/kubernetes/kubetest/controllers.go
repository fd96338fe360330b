package kubetest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// normalize converts a Sandbox of any version to the stored version, v1beta1.
func normalize(o object, version string) {
	spec, _ := o["spec"].(object)
	if spec == nil {
		return
	}
	if version == "v1alpha1" {
		mode := "Running"
		if spec["replicas"] == int64(0) {
			mode = "Suspended"
		}
		delete(spec, "replicas")
		spec["operatingMode"] = mode
	}
	if spec["operatingMode"] == nil {
		spec["operatingMode"] = "Running"
	}
	if spec["shutdownPolicy"] == nil {
		spec["shutdownPolicy"] = "Retain"
	}
	delete(spec, "replicas")
}

// convert converts a stored Sandbox to a version.
func convert(o object, version string) {
	spec, _ := o["spec"].(object)
	if version != "v1alpha1" || spec == nil {
		return
	}
	replicas := int64(1)
	if spec["operatingMode"] == "Suspended" {
		replicas = 0
	}
	delete(spec, "operatingMode")
	spec["replicas"] = replicas
}

// reconcile runs the controllers, the scheduler and the kubelet until nothing changes any more. The lock is held.
func (c *Cluster) reconcile() {
	for again := true; again; {
		before := c.version
		for k, o := range c.objects {
			switch k.resource {
			case "sandboxes":
				if !c.faults.NoController {
					c.reconcileSandbox(k, o)
				}
			case "sandboxwarmpools":
				if !c.faults.NoController {
					c.reconcilePool(k, o)
				}
			case "sandboxclaims":
				if !c.faults.NoController {
					c.reconcileClaim(k, o)
				}
			case "pods":
				c.reconcilePod(k, o)
			}
		}
		c.collect()
		again = c.version != before
	}
	c.watchMemory()
}

// collect removes objects whose owners are all gone, and deleted claims that no pod uses any more.
func (c *Cluster) collect() {
	for k, o := range c.objects {
		if k.resource == "persistentvolumeclaims" && at(o, "metadata", "deletionTimestamp") != nil && !c.inUse(k.name) {
			c.dropClaim(k, o)
		}
	}
	if c.faults.NoCollector {
		return
	}
	uids := map[string]bool{}
	for _, o := range c.objects {
		uids[text(o, "metadata", "uid")] = true
	}
	for k, o := range c.objects {
		owners := list(o, "metadata", "ownerReferences")
		if len(owners) > 0 && !slices.ContainsFunc(owners, func(r any) bool { return uids[text(r, "uid")] }) {
			c.remove(k)
		}
	}
}

// reconcileSandbox makes a Sandbox's pod and volumes, or removes the pod, and updates its status.
func (c *Cluster) reconcileSandbox(k key, o object) {
	if at, err := time.Parse(time.RFC3339, text(o, "spec", "shutdownTime")); err == nil && !at.After(time.Now()) {
		if text(o, "spec", "shutdownPolicy") == "Delete" {
			c.remove(k)
			return
		}
		c.remove(key{"", "pods", k.name})
		c.condition(k, o, "False", "SandboxExpired", "")
		return
	}
	claims := c.claimsOf(k, o)
	podKey := key{"", "pods", k.name}
	there := c.objects[podKey]
	mine := there != nil && slices.ContainsFunc(list(there, "metadata", "ownerReferences"), func(r any) bool {
		return text(r, "uid") == text(o, "metadata", "uid")
	})
	if text(o, "spec", "operatingMode") == "Suspended" {
		if mine {
			c.remove(podKey)
		}
		c.condition(k, o, "False", "SandboxSuspended", "")
		return
	}
	if there == nil {
		if err := errors.Join(claims, c.podOf(k, o)); err != nil {
			c.condition(k, o, "False", "ReconcilerError", err.Error())
		}
		return
	}
	ready := len(list(there, "status", "containerStatuses")) > 0 && at(list(there, "status", "containerStatuses")[0], "ready") == true
	if mine && c.relabel(podKey, there, o) {
		return // it comes again
	}
	switch phase := text(there, "status", "phase"); {
	case claims != nil:
		c.condition(k, o, "False", "ReconcilerError", claims.Error())
	case !mine:
		c.condition(k, o, "False", "ReconcilerError", "a pod of that name belongs to somebody else")
	case phase == "Failed":
		c.condition(k, o, "False", "PodFailed", "")
	case ready && at(there, "metadata", "deletionTimestamp") == nil:
		c.condition(k, o, "True", "DependenciesReady", "")
	default:
		c.condition(k, o, "False", "DependenciesNotReady", "")
	}
}

// ownerSandbox returns an owner reference to a Sandbox, as the controller.
func ownerSandbox(k key, o object) []any {
	return []any{object{
		"apiVersion": sandboxGroup + "/v1beta1", "kind": "Sandbox", "name": k.name, "uid": text(o, "metadata", "uid"),
		"controller": true,
	}}
}

// claimsOf makes the missing claims that a Sandbox names, at each call as agent-sandbox does (reconcilePVCs of
// controllers/sandbox_controller.go). A claim of another owner is an error, but the pod is made and uses it nevertheless.
func (c *Cluster) claimsOf(k key, o object) (err error) {
	for _, t := range list(o, "spec", "volumeClaimTemplates") {
		name := text(t, "metadata", "name") + "-" + k.name
		ck := key{"", "persistentvolumeclaims", name}
		if there := c.objects[ck]; there != nil {
			if owners := list(there, "metadata", "ownerReferences"); len(owners) == 0 || text(owners[0], "uid") != text(o, "metadata", "uid") {
				err = errors.Join(err, fmt.Errorf("PVC %q is owned by another, not by sandbox %q", name, k.name))
			}
			continue
		}
		err = errors.Join(err, c.create(ck, clone(object{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"metadata": object{"name": name, "ownerReferences": ownerSandbox(k, o)},
			"spec":     at(t, "spec"),
		})))
	}
	return err
}

// podOf makes the pod of a Sandbox.
func (c *Cluster) podOf(k key, o object) error {
	spec, _ := at(clone(o), "spec", "podTemplate", "spec").(object)
	for _, t := range list(o, "spec", "volumeClaimTemplates") {
		name := text(t, "metadata", "name") + "-" + k.name
		spec["volumes"] = append(list(spec, "volumes"), object{
			"name": text(t, "metadata", "name"), "persistentVolumeClaim": object{"claimName": name},
		})
	}
	labels := object{}
	if all, ok := at(o, "spec", "podTemplate", "metadata", "labels").(object); ok {
		maps.Copy(labels, all)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(k.name)) // never fails
	labels[sandboxGroup+"/sandbox-name-hash"] = fmt.Sprintf("%08x", h.Sum32())
	made := object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": k.name, "labels": labels, "ownerReferences": ownerSandbox(k, o)},
		"spec":     spec,
	}
	admitted, err := c.admit(request{served: served{"", "pods", "Pod", []string{"v1"}, false}, version: "v1"}, made, nil)
	if err != nil {
		return err
	}
	return c.create(key{"", "pods", k.name}, admitted)
}

// condition sets a Sandbox's condition Ready.
func (c *Cluster) condition(k key, o object, status, reason, message string) {
	changed := clone(o)
	set(changed, []any{object{"type": "Ready", "status": status, "reason": reason, "message": message}}, "status", "conditions")
	_ = c.update(k, changed) // it is there: the lock is held
}

// reconcilePod starts a pod's processes, and removes a deleted pod when its processes have ended.
func (c *Cluster) reconcilePod(k key, o object) {
	p := c.pods[k.name]
	leaving := at(o, "metadata", "deletionTimestamp") != nil
	switch {
	case p != nil && p.uid != text(o, "metadata", "uid"):
		p.kill()
	case leaving && p == nil:
		c.put(k, clone(o), "DELETED")
	case leaving:
		p.terminate()
	case p != nil || text(o, "status", "phase") != "Pending":
	case c.faults.NoRoom != "":
		c.status(k, o, unschedulable(c.faults.NoRoom))
	case c.opt.Node.refuses(o) != "":
		c.status(k, o, unschedulable("0/1 nodes are available: 1 "+c.opt.Node.refuses(o)))
	case c.faults.PullError != "":
		image := text(list(o, "spec", "containers")[0], "image")
		c.status(k, o, object{"phase": "Pending", "containerStatuses": []any{object{
			"name": "main", "image": image, "ready": false,
			"state": object{"waiting": object{"reason": "ImagePullBackOff", "message": c.faults.PullError}},
		}}})
	default:
		c.startPod(k, o)
	}
}

func (c *Cluster) status(k key, o, status object) {
	changed := clone(o)
	changed["status"] = status
	_ = c.update(k, changed) // as above
}

func (c *Cluster) makeVolume(uid string) {
	dir := c.volumeDir(uid)
	if os.MkdirAll(dir, 0o770) == nil {
		_ = os.Chown(dir, podUser, podUser) // else the pod cannot write, which its test says
	}
}

func (c *Cluster) dropVolume(uid string) { _ = os.RemoveAll(c.volumeDir(uid)) }

// podDir returns the directory of a pod's own volumes.
func (c *Cluster) podDir(uid string) string { return filepath.Join(c.dir, "pods", uid) }
