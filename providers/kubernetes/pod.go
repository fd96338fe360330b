package kubernetes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// podState is the relevant state of a pod.
type podState struct {
	name, uid, container string
	ready                bool // its container runs, and it is not being deleted
	leaving              bool // it is being deleted
	over                 bool // it has ended: its first process runs no more, and never will
	oom                  bool // by its memory limit
	addresses            []netip.Addr
	problem              string // why it is not ready, or how it ended, in the cluster's words
	hopeless             bool   // waiting will not help
}

// look returns the state of a pod object.
func look(o unstructured.Unstructured) podState {
	s := podState{name: o.GetName(), uid: string(o.GetUID()), leaving: o.GetDeletionTimestamp() != nil}
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	s.addresses = addressesOf(o)
	reason, _, _ := unstructured.NestedString(o.Object, "status", "reason")
	message, _, _ := unstructured.NestedString(o.Object, "status", "message")
	main := mainContainer(o)
	s.container, _, _ = unstructured.NestedString(main, "containerID")
	if i := strings.Index(s.container, "://"); i >= 0 {
		s.container = s.container[i+len("://"):]
	}
	s.container = s.container[:min(len(s.container), hashLength)]
	isReady, _, _ := unstructured.NestedBool(main, "ready")
	_, running, _ := unstructured.NestedMap(main, "state", "running")
	s.ready = phase == "Running" && isReady && running && !s.leaving && s.container != ""
	ended, isEnded, _ := unstructured.NestedMap(main, "state", "terminated")
	s.over = phase == "Failed" || phase == "Succeeded" || isEnded
	switch {
	case reason != "": // such as Evicted
		s.problem = strings.TrimSpace(reason + ": " + message)
	case isEnded:
		why, _, _ := unstructured.NestedString(ended, "reason")
		code, _, _ := unstructured.NestedInt64(ended, "exitCode")
		s.oom = why == "OOMKilled"
		s.problem = fmt.Sprintf("%s: its first process ended with code %d", why, code)
	default:
		s.problem, s.hopeless = waitingFor(o, main)
	}
	return s
}

// addressesOf returns a pod's IP addresses, which are all that identifies the pod of a connection.
func addressesOf(o unstructured.Unstructured) (all []netip.Addr) {
	first, _, _ := unstructured.NestedString(o.Object, "status", "podIP")
	texts := []string{first}
	more, _, _ := unstructured.NestedSlice(o.Object, "status", "podIPs")
	for _, m := range more {
		if entry, ok := m.(map[string]any); ok {
			text, _ := entry["ip"].(string)
			texts = append(texts, text)
		}
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(all, a.Unmap()) {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// mainContainer returns the status of the pod's main container; nil if it has none yet.
func mainContainer(o unstructured.Unstructured) map[string]any {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "containerStatuses")
	for _, c := range all {
		if m, ok := c.(map[string]any); ok && m["name"] == container {
			return m
		}
	}
	return nil
}

// waitingFor returns what keeps a pod from running, and whether that is hopeless, i.e. will not change by itself. The kubelet retries an
// image pull; it counts as hopeless once the kubelet backs off.
func waitingFor(o unstructured.Unstructured, main map[string]any) (problem string, hopeless bool) {
	reason, _, _ := unstructured.NestedString(main, "state", "waiting", "reason")
	message, _, _ := unstructured.NestedString(main, "state", "waiting", "message")
	image, _, _ := unstructured.NestedString(main, "image")
	switch reason {
	case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return fmt.Sprintf("the image %s cannot be pulled: %s: %s", image, reason, message), true
	case "ErrImagePull":
		return fmt.Sprintf("the image %s cannot be pulled: %s: %s", image, reason, message), false
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return fmt.Sprintf("the container cannot be started: %s: %s", reason, message), true
	case "", "ContainerCreating", "PodInitializing":
	default:
		return reason + ": " + message, false
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "PodScheduled" && m["status"] == "False" {
			return fmt.Sprintf("no node has room for it: %v: %v", m["reason"], m["message"]), false
		}
	}
	if reason == "" {
		return "its container is not there yet", false
	}
	return "its container is being made", false
}

// ownedBy reports whether an object has an owner with that UID.
func ownedBy(o unstructured.Unstructured, uid string) bool {
	for _, r := range o.GetOwnerReferences() {
		if string(r.UID) == uid {
			return true
		}
	}
	return false
}

// anyPod accepts all pods of a box.
func anyPod(unstructured.Unstructured) bool { return true }

// podReference returns the pod as an object for an owner reference.
func podReference(s podState) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Pod"}}
	o.SetName(s.name)
	o.SetUID(types.UID(s.uid))
	return o
}
