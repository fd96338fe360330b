package kubetest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// served is a resource of the API.
type served struct {
	group, resource, kind string
	versions              []string // the stored one first
	cluster               bool     // its objects are in no namespace
}

func (c *Cluster) resources() []served {
	all := []served{
		{"", "pods", "Pod", []string{"v1"}, false},
		{"", "persistentvolumeclaims", "PersistentVolumeClaim", []string{"v1"}, false},
		{"", "persistentvolumes", "PersistentVolume", []string{"v1"}, true},
		{"networking.k8s.io", "networkpolicies", "NetworkPolicy", []string{"v1"}, false},
		{"storage.k8s.io", "csidrivers", "CSIDriver", []string{"v1"}, true},
	}
	if len(c.opt.Sandboxes) > 0 {
		all = append(all, served{sandboxGroup, "sandboxes", "Sandbox", c.opt.Sandboxes, false})
	}
	if c.opt.WarmPools {
		all = append(all, served{extensionGroup, "sandboxclaims", "SandboxClaim", c.opt.Sandboxes, false},
			served{extensionGroup, "sandboxwarmpools", "SandboxWarmPool", c.opt.Sandboxes, false},
			served{extensionGroup, "sandboxtemplates", "SandboxTemplate", c.opt.Sandboxes, false})
	}
	return all
}

const (
	sandboxGroup = "agents.x-k8s.io"
	maxBody      = 3 << 20
)

// request is a parsed request path.
type request struct {
	served
	version, name, sub string
}

func (r request) key() key { return key{r.group, r.resource, r.name} }

// serve answers one request.
func (c *Cluster) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	answer := c.faults.Answer
	c.mu.Unlock()
	if answer != nil {
		switch status, after := answer(r); {
		case status < 0: // as if there were no server
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
			return
		case status > 0:
			if after > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(after))
			}
			e := apierrors.NewGenericServerResponse(status, r.Method, schema.GroupResource{}, "", "made to fail by the test", after, true)
			writeJSON(w, status, e.Status())
			return
		}
	}
	if c.discovery(w, r) {
		return
	}
	req, ok := c.parse(r.URL.Path)
	if !ok {
		fail(w, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "no such path", 0, false))
		return
	}
	if err := c.authorize(verbOf(r, req), req); err != nil {
		fail(w, err)
		return
	}
	switch {
	case req.sub == "exec":
		c.exec(w, r, req.name)
	case req.name == "" && r.Method == http.MethodGet && (r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1"):
		c.watch(w, r, req)
	default:
		status, body, err := c.change(r, req)
		if err != nil {
			fail(w, err)
			return
		}
		writeJSON(w, status, body)
	}
}

// parse parses the path of a resource in the namespace.
func (c *Cluster) parse(path string) (request, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var group, version string
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		version, parts = parts[1], parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		group, version, parts = parts[1], parts[2], parts[3:]
	default:
		return request{}, false
	}
	cluster := len(parts) > 0 && parts[0] != "namespaces"
	if !cluster {
		if len(parts) < 3 || parts[1] != Namespace {
			return request{}, false
		}
		parts = parts[2:]
	}
	parts = append(parts, "", "")
	for _, s := range c.resources() {
		if s.cluster == cluster && s.group == group && s.resource == parts[0] && slices.Contains(s.versions, version) {
			return request{s, version, parts[1], parts[2]}, true
		}
	}
	return request{}, false
}

// change handles all requests except watches and execs. It returns a status and a body.
func (c *Cluster) change(r *http.Request, req request) (int, any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return 0, nil, apierrors.NewBadRequest(err.Error())
	}
	var sent object
	if len(body) > 0 {
		if err := utiljson.Unmarshal(body, &sent); err != nil {
			return 0, nil, apierrors.NewBadRequest(err.Error())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := req.key()
	switch there := c.objects[k]; {
	case r.Method == http.MethodPost && req.name == "":
		o, err := c.admit(req, sent, nil)
		if err != nil {
			return 0, nil, err
		}
		k.name = text(o, "metadata", "name")
		if err := c.create(k, o); err != nil {
			return 0, nil, err
		}
		return http.StatusCreated, c.shown(req, c.objects[k]), nil
	case r.Method == http.MethodGet && req.name == "":
		return c.list(r, req)
	case there == nil:
		return 0, nil, apierrors.NewNotFound(k.of(), k.name)
	case r.Method == http.MethodGet:
		return http.StatusOK, c.shown(req, there), nil
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json":
		merged := merge(clone(c.shown(req, there)), sent)
		return c.replace(req, there, merged)
	case r.Method == http.MethodPut:
		return c.replace(req, there, sent)
	case r.Method == http.MethodDelete:
		for _, what := range []string{"uid", "resourceVersion"} {
			if want := text(sent, "preconditions", what); want != "" && want != text(there, "metadata", what) {
				return 0, nil, apierrors.NewConflict(k.of(), k.name, preconditionError(what))
			}
		}
		c.remove(k)
		return http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
	}
	return 0, nil, apierrors.NewMethodNotSupported(k.of(), r.Method)
}

// replace stores a changed object. It returns a conflict unless the change is based on the current version.
func (c *Cluster) replace(req request, there, changed object) (int, any, error) {
	k := req.key()
	for _, what := range []string{"uid", "resourceVersion"} {
		if want := text(changed, "metadata", what); want != "" && want != text(there, "metadata", what) {
			return 0, nil, apierrors.NewConflict(k.of(), k.name, preconditionError(what))
		}
	}
	o, err := c.admit(req, changed, there)
	if err != nil {
		return 0, nil, err
	}
	if there["status"] != nil { // a resource of its own
		o["status"] = there["status"]
	}
	if err := c.update(k, o); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, c.shown(req, c.objects[k]), nil
}

// list returns all objects that match a selector.
func (c *Cluster) list(r *http.Request, req request) (int, any, error) {
	selector, err := selectorOf(r)
	if err != nil {
		return 0, nil, err
	}
	items := []any{}
	for k, o := range c.objects {
		if k.group == req.group && k.resource == req.resource && selector(o) {
			items = append(items, c.shown(req, o))
		}
	}
	slices.SortFunc(items, func(a, b any) int { return cmp.Compare(text(a, "metadata", "name"), text(b, "metadata", "name")) })
	return http.StatusOK, object{
		"apiVersion": versionOf(req), "kind": req.kind + "List",
		"metadata": object{"resourceVersion": strconv.FormatInt(c.version, 10)}, "items": items,
	}, nil
}

func selectorOf(r *http.Request) (func(object) bool, error) {
	l, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	name, byName := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return func(o object) bool {
		set := labels.Set{}
		if all, ok := at(o, "metadata", "labels").(object); ok {
			for k, v := range all {
				set[k], _ = v.(string)
			}
		}
		return l.Matches(set) && (!byName || text(o, "metadata", "name") == name)
	}, nil
}

// watch sends changes until the client disconnects or has fallen behind.
func (c *Cluster) watch(w http.ResponseWriter, r *http.Request, req request) {
	selector, err := selectorOf(r)
	if err != nil {
		fail(w, err)
		return
	}
	from, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64) // none: all that is kept
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	send := json.NewEncoder(w)
	_ = flush.Flush()
	for {
		c.mu.Lock()
		changed, expired := c.changed, from < c.oldest
		var out []object
		for _, e := range c.events {
			if e.version > from && e.key.group == req.group && e.key.resource == req.resource && selector(e.object) {
				out = append(out, object{"type": e.kind, "object": c.shown(req, clone(e.object))})
			}
		}
		from = max(from, c.version)
		c.mu.Unlock()
		if expired {
			status := apierrors.NewResourceExpired("too old resource version").Status()
			status.Kind, status.APIVersion = "Status", "v1"
			if send.Encode(object{"type": "ERROR", "object": status}) != nil { //nolint:errchkjson // the watcher is gone
				return
			}
			return
		}
		for _, e := range out {
			if send.Encode(e) != nil { //nolint:errchkjson // as above
				return
			}
		}
		if flush.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-c.ctx.Done():
			return
		case <-changed:
		}
	}
}

// shown returns an object in the requested version.
func (c *Cluster) shown(req request, o object) object {
	out := clone(o)
	out["apiVersion"], out["kind"] = versionOf(req), req.kind
	if req.resource == "sandboxes" {
		convert(out, req.version)
	}
	return out
}

func versionOf(req request) string {
	if req.group == "" {
		return req.version
	}
	return req.group + "/" + req.version
}

func fail(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	writeJSON(w, int(s.Code), s)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("an answer is no JSON: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
