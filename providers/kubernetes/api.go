package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const sandboxGroup = "agents.x-k8s.io"

var (
	podResource    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}                                                    //nolint:gochecknoglobals // the name of a resource never changes
	claimResource  = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}                                  //nolint:gochecknoglobals // the name of a resource never changes
	policyResource = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}             //nolint:gochecknoglobals // the name of a resource never changes
	reviewResource = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"} //nolint:gochecknoglobals // the name of a resource never changes
)

// served is the versions of agent-sandbox's resources that the cluster serves and the provider uses.
type served struct {
	sandbox string // of Sandboxes; empty: boxes are pods
	claims  string // of claims on the warm pool; empty: it is not used
}

// boxResource returns the resource of boxes: Sandboxes, or pods.
func (s served) boxResource() schema.GroupVersionResource {
	if s.sandbox == "" {
		return podResource
	}
	return schema.GroupVersionResource{Group: sandboxGroup, Version: s.sandbox, Resource: "sandboxes"}
}

// extension returns a resource of agent-sandbox's extension group.
func (s served) extension(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: extensionGroup, Version: s.claims, Resource: resource}
}

// poolClaimResource returns the resource of claims on boxes of the warm pool.
func (s served) poolClaimResource() schema.GroupVersionResource { return s.extension("sandboxclaims") }

// setRunning sets in a Sandbox's spec whether it has a pod, with the field of the served version.
func (s served) setRunning(spec object, running bool) {
	switch {
	case s.sandbox == "v1alpha1" && running:
		spec["replicas"] = int64(1)
	case s.sandbox == "v1alpha1":
		spec["replicas"] = int64(0)
	case running:
		spec["operatingMode"] = "Running"
	default:
		spec["operatingMode"] = "Suspended"
	}
}

// runs reports whether a Sandbox should have a pod.
func (s served) runs(o *unstructured.Unstructured) bool {
	if s.sandbox == "v1alpha1" {
		n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		return !found || n > 0
	}
	mode, _, _ := unstructured.NestedString(o.Object, "spec", "operatingMode")
	return mode != "Suspended"
}

// servedVersion returns the newest version of a group of agent-sandbox that the cluster serves and this package knows; empty if there is
// none.
func servedVersion(ctx context.Context, config *rest.Config, name string) (string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", schemas.Wrap(schemas.Invalid, "connect", "the cluster's configuration cannot be used", err)
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", schemas.Wrap(schemas.Invalid, "connect", "the cluster's address cannot be used", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host.JoinPath("apis", name).String(), http.NoBody)
	if err != nil {
		return "", schemas.Wrap(schemas.Invalid, "connect", "the cluster's address cannot be used", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", explain("connect", err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	var group metav1.APIGroup
	switch answer.StatusCode {
	case http.StatusNotFound:
		return "", nil
	case http.StatusOK:
		err = json.NewDecoder(http.MaxBytesReader(nil, answer.Body, mebi)).Decode(&group)
		if err != nil {
			return "", schemas.Wrap(schemas.Unavailable, "connect", "the cluster's answer on its resources cannot be read", err)
		}
	default:
		sandboxes := schema.GroupResource{Group: name}
		return "", explain("connect", apierrors.NewGenericServerResponse(answer.StatusCode, "get", sandboxes, "", answer.Status, 0, true))
	}
	for _, known := range []string{"v1beta1", "v1alpha1"} {
		if slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == known }) {
			return known, nil
		}
	}
	return "", nil
}

// api reads and writes the objects of one namespace, and runs programs in its pods.
type api struct {
	config    *rest.Config
	client    dynamic.Interface
	namespace string
}

// in returns a client for the resource, in the namespace or, for resources without namespaces, in the cluster.
func (a *api) in(r schema.GroupVersionResource) dynamic.ResourceInterface {
	if r == volumeResource || r == driverResource { // no namespace's
		return a.client.Resource(r)
	}
	return a.client.Resource(r).Namespace(a.namespace)
}

// create creates an object. Existed reports that an object of that name exists; made is nil then.
func (a *api) create(ctx context.Context, r schema.GroupVersionResource, o object) (
	made *unstructured.Unstructured, existed bool, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	made, err = a.in(r).Create(ctx, &unstructured.Unstructured{Object: o}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, true, nil
	}
	return made, false, explain("make "+r.Resource, err)
}

// get returns an object; nil without an error if it does not exist.
func (a *api) get(ctx context.Context, r schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o, err := a.in(r).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // its absence is an answer
	}
	return o, explain("read "+r.Resource, err)
}

// list returns all objects with a label.
func (a *api) list(ctx context.Context, r schema.GroupVersionResource, selector string) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l, err := a.in(r).List(ctx, metav1.ListOptions{LabelSelector: selector})
	return l, explain("list "+r.Resource, err)
}

// patch merges a change into an object. Code: not_found, the object is gone.
func (a *api) patch(ctx context.Context, r schema.GroupVersionResource, name string, change object) (
	*unstructured.Unstructured, error,
) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(change)
	if err != nil {
		return nil, schemas.Wrap(schemas.Internal, "change "+r.Resource, "the change cannot be written", err)
	}
	o, err := a.in(r).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	return o, explain("change "+r.Resource, err)
}

// remove deletes an object, only the one with the UID if one is given. An object that is gone or has another UID is no error.
func (a *api) remove(ctx context.Context, r schema.GroupVersionResource, name, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	background := metav1.DeletePropagationBackground
	o := metav1.DeleteOptions{PropagationPolicy: &background}
	if uid != "" {
		id := types.UID(uid)
		o.Preconditions = &metav1.Preconditions{UID: &id}
	}
	err := a.in(r).Delete(ctx, name, o)
	if apierrors.IsNotFound(err) || uid != "" && apierrors.IsConflict(err) {
		return nil
	}
	return explain("delete "+r.Resource, err)
}

// removeVersion deletes an object unless it has changed since it was read.
func (a *api) removeVersion(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id, version := o.GetUID(), o.GetResourceVersion()
	err := a.in(r).Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id, ResourceVersion: &version}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return explain("delete "+r.Resource, err)
}

// await calls judge with all objects with a label until it returns true: first with their current state, then after each change. It
// restarts a watch that ends or has fallen behind. It returns the error of judge, or timeout with ctx.
func (a *api) await(ctx context.Context, r schema.GroupVersionResource, selector string,
	judge func(all []unstructured.Unstructured) (done bool, err error),
) error {
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}
	for n := 1; ; n++ {
		done, err := a.follow(ctx, r, selector, judge)
		if done {
			return err
		}
		if err == nil {
			n = 0
		}
		if !again.Sleep(ctx, n) {
			return ctx.Err()
		}
	}
}

// follow makes one list and one watch. If it returns false, the error is why they should be repeated.
func (a *api) follow(ctx context.Context, r schema.GroupVersionResource, selector string,
	judge func([]unstructured.Unstructured) (bool, error),
) (bool, error) {
	all, err := a.list(ctx, r, selector)
	if err != nil {
		if schemas.CodeOf(err) == schemas.Unavailable || schemas.CodeOf(err) == schemas.Exhausted {
			return false, err
		}
		return true, err
	}
	if done, err := judge(all.Items); done || err != nil {
		return true, err
	}
	w, err := a.in(r).Watch(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: all.GetResourceVersion()})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case e, ok := <-w.ResultChan():
			if !ok {
				return false, nil
			}
			if e.Type == watch.Error {
				return false, apierrors.FromObject(e.Object)
			}
			o, isObject := e.Object.(*unstructured.Unstructured)
			if !isObject || e.Type == watch.Bookmark {
				continue
			}
			all.Items = slices.DeleteFunc(all.Items, func(old unstructured.Unstructured) bool { return old.GetName() == o.GetName() })
			if e.Type != watch.Deleted {
				all.Items = append(all.Items, *o)
			}
			if done, err := judge(all.Items); done || err != nil {
				return true, err
			}
		}
	}
}

// explain maps an answer of the API server to an error with a code, with the server's own text where a person can act on it.
func explain(op string, err error) error {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	fromServer := errors.As(err, &status)
	text := ""
	if fromServer {
		text = status.Status().Message
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return schemas.Wrap(schemas.Unavailable, op, "the API server did not answer in time", err)
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err) && isQuota(text):
		if isQuota(text) {
			return schemas.OpErrorf(schemas.Exhausted, op, "the namespace's quota is used up: %s", text)
		}
		return schemas.OpErrorf(schemas.Denied, op, "the API server does not accept our credentials")
	case apierrors.IsForbidden(err):
		return schemas.OpErrorf(schemas.Denied, op, "the API server refuses it: %s", text)
	case apierrors.IsNotFound(err):
		return schemas.OpErrorf(schemas.NotFound, op, "there is no such object: %s", text)
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsRequestEntityTooLargeError(err):
		return schemas.OpErrorf(schemas.Invalid, op, "the API server does not take it: %s", text)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return schemas.OpErrorf(schemas.Conflict, op, "it was changed at the same time: %s", text)
	case apierrors.IsTooManyRequests(err) && seconds > 0:
		return schemas.OpErrorf(schemas.Exhausted, op, "the API server is busy: try again after %d s", seconds)
	case apierrors.IsTooManyRequests(err):
		return schemas.OpErrorf(schemas.Exhausted, op, "the API server is busy")
	case fromServer:
		return schemas.Wrap(schemas.Unavailable, op, "the API server cannot do it now", err)
	}
	return schemas.Wrap(schemas.Unavailable, op, "the API server cannot be reached", err)
}

// isQuota reports whether a resource quota caused a refusal.
func isQuota(text string) bool { return strings.Contains(text, "exceeded quota") }
