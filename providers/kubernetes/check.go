package kubernetes

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandjet/sandjet/schemas"
)

// Finding is a result of [Check].
type Finding struct {
	OK     bool   // it is as it has to be
	Fatal  bool   // nothing works without it
	Says   string // what was found
	Remedy string // what an operator can do; empty: nothing has to be done
}

// permission is an operation that a worker must be allowed to do.
type permission struct {
	schema.GroupVersionResource

	sub   string
	verbs string
}

// cluster checks whether a cluster provides and allows what the provider needs.
type cluster struct {
	api    *api
	opt    Options
	served served
}

// permissions returns the operations that the provider uses in a cluster; deploy/kubernetes grants the same.
func (c *cluster) permissions() []permission {
	pods, claims := "get list watch", "get create"
	if c.served.sandbox == "" {
		pods, claims = pods+" create delete", claims+" delete"
	}
	all := []permission{
		{podResource, "", pods},
		{podResource, "exec", "get create"},
		{policyResource, "", "get list create patch delete"},
		{claimResource, "", claims},
	}
	if c.served.sandbox != "" {
		all = append(all, permission{c.served.boxResource(), "", "get list create patch delete"})
	}
	if c.opt.S3.Bucket != "" {
		all = append(all, permission{volumeResource, "", "create"})
	}
	if c.served.claims != "" {
		all = append(all, permission{c.served.poolClaimResource(), "", "list watch create delete"},
			permission{c.served.extension("sandboxwarmpools"), "", "get"}, permission{c.served.extension("sandboxtemplates"), "", "get"})
	}
	return all
}

// Check checks whether boxes can be made: it connects, asks for its permissions, and reads the namespace's pod security level. It creates
// nothing. It blocks for several requests of at most 30 seconds each.
func Check(ctx context.Context, o Options) []Finding {
	p, err := New(ctx, o)
	if err != nil {
		return []Finding{{
			Fatal: true, Says: err.Error(),
			Remedy: "name a kubeconfig with --kubernetes-config, or run inside of a cluster, " +
				"and see whether the API server can be reached",
		}}
	}
	c := &cluster{api: p.boxes.api, opt: p.terms.opt, served: p.boxes.served}
	findings := []Finding{{OK: true, Says: "boxes are Sandbox objects of agent-sandbox, " + p.boxes.served.sandbox}}
	if p.boxes.served.sandbox == "" {
		findings[0] = Finding{OK: true, Says: "the cluster serves no Sandbox objects: boxes are pods"}
		if o.Mode == ModePod {
			findings[0].Says = "boxes are pods, as was asked for"
		}
	}
	findings = append(append(findings, c.rights(ctx)...), c.security(ctx), p.proxies.check(ctx))
	if c.opt.S3.Bucket != "" {
		findings = append(findings, c.driver(ctx))
	}
	if c.opt.WarmPool != "" {
		findings = append(findings, p.runBoxes.pool.check(ctx))
	}
	return findings
}

// rights asks the API server whether each operation is allowed.
func (c *cluster) rights(ctx context.Context) []Finding {
	var missing []string
	for _, want := range c.permissions() {
		for verb := range strings.FieldsSeq(want.verbs) {
			ok, err := c.allowed(ctx, want, verb)
			if err != nil {
				return []Finding{{
					Fatal: true, Says: "the API server does not say what we may do: " + err.Error(),
					Remedy: "see whether the credentials are valid",
				}}
			}
			if !ok {
				name := want.Resource
				if want.sub != "" {
					name += "/" + want.sub
				}
				missing = append(missing, verb+" "+name)
			}
		}
	}
	if len(missing) > 0 {
		return []Finding{{
			Fatal: true,
			Says:  fmt.Sprintf("not allowed in the namespace %s: %s", c.opt.Namespace, strings.Join(missing, ", ")),
			Remedy: "apply deploy/kubernetes/rbac-sandbox.yaml or rbac-pod.yaml, rbac-s3.yaml with a bucket, rbac-warm-pool.yaml with a pool; " +
				"use their service account",
		}}
	}
	return []Finding{{OK: true, Says: "everything that is needed is allowed in the namespace " + c.opt.Namespace}}
}

// allowed asks the API server whether the client may use one verb.
func (c *cluster) allowed(ctx context.Context, want permission, verb string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	namespace := c.opt.Namespace
	if want.GroupVersionResource == volumeResource {
		namespace = ""
	}
	review := object{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": object{"resourceAttributes": object{
		"namespace": namespace, "group": want.Group, "resource": want.Resource, "subresource": want.sub, "verb": verb,
	}}}
	answer, err := c.api.client.Resource(reviewResource).Create(ctx, &unstructured.Unstructured{Object: review}, metav1.CreateOptions{})
	if err != nil {
		return false, explain("ask for rights", err)
	}
	ok, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed")
	return ok, nil
}

// driver checks for the driver that mounts buckets.
func (c *cluster) driver(ctx context.Context) Finding {
	switch there, err := c.api.get(ctx, driverResource, driverS3); {
	case err != nil:
		return Finding{
			Says:   "whether the cluster has the driver " + driverS3 + " cannot be seen: " + err.Error(),
			Remedy: "apply deploy/kubernetes/rbac-s3.yaml",
		}
	case there == nil:
		return Finding{
			Fatal: true, Says: "the cluster has no driver " + driverS3 + ", which mounts buckets",
			Remedy: "install the Mountpoint for Amazon S3 CSI driver, or leave --kubernetes-s3-bucket out",
		}
	}
	return Finding{OK: true, Says: "workspaces on S3 are in the bucket " + c.opt.S3.Bucket + ", mounted by " + driverS3}
}

// security reads which pods the namespace's pod security level allows.
func (c *cluster) security(ctx context.Context) Finding {
	const label = "pod-security.kubernetes.io/enforce"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	namespaces := c.api.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	ns, err := namespaces.Get(ctx, c.opt.Namespace, metav1.GetOptions{})
	switch code := schemas.CodeOf(explain("read namespace", err)); {
	case code == schemas.NotFound:
		return Finding{Fatal: true, Says: "there is no namespace " + c.opt.Namespace, Remedy: "apply deploy/kubernetes/namespace.yaml"}
	case err != nil:
		return Finding{
			Says:   "the namespace cannot be read, so its pod security level is not known",
			Remedy: "allow get on namespaces, as deploy/kubernetes does",
		}
	case ns.GetLabels()[label] != "restricted":
		return Finding{
			Says: fmt.Sprintf("the namespace %s does not enforce the pod security level restricted", c.opt.Namespace),
			Remedy: "boxes keep it anyway; kubectl label namespace " + c.opt.Namespace + " " + label +
				"=restricted makes the cluster refuse all that do not",
		}
	}
	return Finding{OK: true, Says: "the namespace " + c.opt.Namespace + " enforces the pod security level restricted"}
}
