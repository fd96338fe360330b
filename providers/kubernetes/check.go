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

// Finding is something that [Check] has found out.
type Finding struct {
	OK     bool   // it is as it has to be
	Fatal  bool   // nothing works without it
	Says   string // what was found
	Remedy string // what an operator can do; empty: nothing has to be done
}

// permission is something that a worker has to be allowed to do.
type permission struct {
	schema.GroupVersionResource

	sub   string
	verbs string
}

// permissions are what the provider does in a cluster: deploy/kubernetes grants the same.
func (p *Provider) permissions() []permission {
	pods, claims := "get list watch", "get create"
	if p.sandbox == "" {
		pods, claims = pods+" create delete", claims+" delete"
	}
	all := []permission{
		{podResource, "", pods},
		{podResource, "exec", "get create"},
		{policyResource, "", "get list create patch delete"},
		{claimResource, "", claims},
	}
	if p.sandbox != "" {
		all = append(all, permission{p.boxResource(), "", "get list create patch delete"})
	}
	if p.opt.S3.Bucket != "" {
		all = append(all, permission{volumeResource, "", "create"})
	}
	if p.claims != "" {
		all = append(all, permission{p.claimedResource(), "", "list watch create delete"},
			permission{p.extension("sandboxwarmpools"), "", "get"}, permission{p.extension("sandboxtemplates"), "", "get"})
	}
	return all
}

// Check finds out whether boxes can be made: it connects, asks what it may do, and reads the namespace's pod security
// level. It makes nothing. It blocks for some requests of 30 seconds at most.
func Check(ctx context.Context, o Options) []Finding {
	p, err := New(ctx, o)
	if err != nil {
		return []Finding{{
			Fatal: true, Says: err.Error(),
			Remedy: "name a kubeconfig with --kubernetes-config, or run inside of a cluster, " +
				"and see whether the API server can be reached",
		}}
	}
	findings := []Finding{{OK: true, Says: "boxes are Sandbox objects of agent-sandbox, " + p.sandbox}}
	if p.sandbox == "" {
		findings[0] = Finding{OK: true, Says: "the cluster serves no Sandbox objects: boxes are pods"}
		if o.Mode == ModePod {
			findings[0].Says = "boxes are pods, as was asked for"
		}
	}
	findings = append(append(findings, p.checkRights(ctx)...), p.checkSecurity(ctx), p.checkEgress(ctx))
	if p.opt.S3.Bucket != "" {
		findings = append(findings, p.checkDriver(ctx))
	}
	if p.opt.WarmPool != "" {
		findings = append(findings, p.checkPool(ctx))
	}
	return findings
}

// checkEgress looks for the proxy by which boxes reach names.
func (p *Provider) checkEgress(ctx context.Context) Finding {
	if p.opt.Egress == nil {
		return Finding{
			OK: true, Says: "no egress proxy is named: sandboxes that list domains are refused",
			Remedy: "for domains: apply deploy/kubernetes/egress.yaml, and name its service with --kubernetes-egress",
		}
	}
	found, err := p.findProxy(ctx)
	if err != nil {
		return Finding{Says: "sandboxes that list domains cannot run: " + schemas.Public(err).Message, Remedy: "see docs/guides/kubernetes.md"}
	}
	return Finding{OK: true, Says: "sandboxes that list domains reach them by the egress proxy at " + found.address.String()}
}

// checkRights asks the API server about each verb.
func (p *Provider) checkRights(ctx context.Context) []Finding {
	var missing []string
	for _, want := range p.permissions() {
		for verb := range strings.FieldsSeq(want.verbs) {
			ok, err := p.allowed(ctx, want, verb)
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
			Says:  fmt.Sprintf("not allowed in the namespace %s: %s", p.opt.Namespace, strings.Join(missing, ", ")),
			Remedy: "apply deploy/kubernetes/rbac-sandbox.yaml or rbac-pod.yaml, rbac-s3.yaml with a bucket, rbac-warm-pool.yaml with a pool; " +
				"use their service account",
		}}
	}
	return []Finding{{OK: true, Says: "everything that is needed is allowed in the namespace " + p.opt.Namespace}}
}

// allowed asks whether the client may do one thing.
func (p *Provider) allowed(ctx context.Context, want permission, verb string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	namespace := p.opt.Namespace
	if want.GroupVersionResource == volumeResource {
		namespace = ""
	}
	review := object{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": object{"resourceAttributes": object{
		"namespace": namespace, "group": want.Group, "resource": want.Resource, "subresource": want.sub, "verb": verb,
	}}}
	answer, err := p.client.Resource(reviewResource).Create(ctx, &unstructured.Unstructured{Object: review}, metav1.CreateOptions{})
	if err != nil {
		return false, explain("ask for rights", err)
	}
	ok, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed")
	return ok, nil
}

// checkDriver looks for what mounts buckets.
func (p *Provider) checkDriver(ctx context.Context) Finding {
	switch there, err := p.get(ctx, driverResource, driverS3); {
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
	return Finding{OK: true, Says: "workspaces on S3 are in the bucket " + p.opt.S3.Bucket + ", mounted by " + driverS3}
}

// checkSecurity reads which pods the namespace takes.
func (p *Provider) checkSecurity(ctx context.Context) Finding {
	const label = "pod-security.kubernetes.io/enforce"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	namespaces := p.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	ns, err := namespaces.Get(ctx, p.opt.Namespace, metav1.GetOptions{})
	switch code := schemas.CodeOf(explain("read namespace", err)); {
	case code == schemas.NotFound:
		return Finding{Fatal: true, Says: "there is no namespace " + p.opt.Namespace, Remedy: "apply deploy/kubernetes/namespace.yaml"}
	case err != nil:
		return Finding{
			Says:   "the namespace cannot be read, so its pod security level is not known",
			Remedy: "allow get on namespaces, as deploy/kubernetes does",
		}
	case ns.GetLabels()[label] != "restricted":
		return Finding{
			Says: fmt.Sprintf("the namespace %s does not enforce the pod security level restricted", p.opt.Namespace),
			Remedy: "boxes keep it anyway; kubectl label namespace " + p.opt.Namespace + " " + label +
				"=restricted makes the cluster refuse all that do not",
		}
	}
	return Finding{OK: true, Says: "the namespace " + p.opt.Namespace + " enforces the pod security level restricted"}
}
