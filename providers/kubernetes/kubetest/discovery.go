package kubetest

import (
	"net/http"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// discovery answers requests that need no permission: the served resources, and the client's permissions. It returns false for other
// requests.
func (c *Cluster) discovery(w http.ResponseWriter, r *http.Request) bool {
	path := strings.Trim(r.URL.Path, "/")
	switch {
	case path == "version":
		writeJSON(w, http.StatusOK, object{"major": "1", "minor": "37", "gitVersion": "v1.37.0-double"})
	case path == "api":
		writeJSON(w, http.StatusOK, object{"kind": "APIVersions", "apiVersion": "v1", "versions": []any{"v1"}})
	case path == "apis":
		var groups []any
		for _, g := range []string{"networking.k8s.io", "authorization.k8s.io", "storage.k8s.io", sandboxGroup, extensionGroup} {
			if group := c.groupOf(g); group != nil {
				groups = append(groups, group)
			}
		}
		writeJSON(w, http.StatusOK, object{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
	case path == "api/v1" || strings.HasPrefix(path, "apis/") && strings.Count(path, "/") == 2:
		return c.resourceList(w, path)
	case strings.HasPrefix(path, "apis/") && strings.Count(path, "/") == 1:
		group := c.groupOf(strings.TrimPrefix(path, "apis/"))
		if group == nil {
			http.NotFound(w, r)
			return true
		}
		writeJSON(w, http.StatusOK, group)
	case path == "api/v1/namespaces/"+Namespace && r.Method == http.MethodGet:
		if err := c.authorize("get", request{served: served{resource: "namespaces", kind: "Namespace"}, name: Namespace}); err != nil {
			fail(w, err)
			return true
		}
		writeJSON(w, http.StatusOK, object{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": object{"name": Namespace, "uid": "0", "labels": object{"pod-security.kubernetes.io/enforce": "restricted"}},
		})
	case r.Method == http.MethodGet && c.service(path) != nil:
		name := path[strings.LastIndex(path, "/")+1:]
		if err := c.authorize("get", request{served: served{resource: "services", kind: "Service"}, name: name}); err != nil {
			fail(w, err)
			return true
		}
		writeJSON(w, http.StatusOK, c.service(path))
	case path == "apis/authorization.k8s.io/v1/selfsubjectaccessreviews" && r.Method == http.MethodPost:
		c.review(w, r)
	default:
		return false
	}
	return true
}

// service returns the service at a path; nil if there is none.
func (c *Cluster) service(path string) object {
	in, ok := strings.CutPrefix(path, "api/v1/namespaces/")
	namespace, name, both := strings.Cut(in, "/services/")
	spec := c.opt.Services[namespace+"/"+name]
	if !ok || !both || spec == nil {
		return nil
	}
	return object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name, "namespace": namespace, "uid": "0"}, "spec": spec}
}

func (c *Cluster) groupOf(name string) object {
	versions := []any{}
	for _, s := range c.resources() {
		if s.group != name {
			continue
		}
		for _, v := range s.versions {
			versions = append(versions, object{"groupVersion": name + "/" + v, "version": v})
		}
	}
	if name == "authorization.k8s.io" {
		versions = append(versions, object{"groupVersion": name + "/v1", "version": "v1"})
	}
	if len(versions) == 0 {
		return nil
	}
	return object{"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": versions[0]}
}

func (c *Cluster) resourceList(w http.ResponseWriter, path string) bool {
	version := strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/")
	resources := []any{}
	for _, s := range c.resources() {
		for _, v := range s.versions {
			if versionOf(request{served: s, version: v}) != version {
				continue
			}
			resources = append(resources, object{
				"name": s.resource, "singularName": strings.ToLower(s.kind), "namespaced": !s.cluster, "kind": s.kind,
				"verbs": []any{"create", "delete", "get", "list", "patch", "update", "watch"},
			})
			if s.resource == "pods" {
				resources = append(resources, object{
					"name": "pods/exec", "singularName": "", "namespaced": true, "kind": "PodExecOptions",
					"verbs": []any{"create", "get"},
				})
			}
		}
	}
	if len(resources) == 0 && version != "authorization.k8s.io/v1" {
		return false
	}
	writeJSON(w, http.StatusOK, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
	return true
}

// review answers a SelfSubjectAccessReview.
func (c *Cluster) review(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, 0, 1024)
	buf := make([]byte, 1024)
	for {
		n, err := r.Body.Read(buf)
		body = append(body, buf[:n]...)
		if err != nil || len(body) > maxBody {
			break
		}
	}
	var o object
	if err := utiljson.Unmarshal(body, &o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a := at(o, "spec", "resourceAttributes")
	u := Use{text(a, "group"), text(a, "resource"), text(a, "verb")}
	if sub := text(a, "subresource"); sub != "" {
		u.Resource += "/" + sub
	}
	o["status"] = object{"allowed": c.allows(u)}
	writeJSON(w, http.StatusCreated, o)
}
