package kubernetes

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// listKept lists the kept boxes of a deployment. See [Provider.ListKept].
func (bs *boxes) listKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	if err := providers.CheckDeployment(deployment); err != nil {
		return nil, err
	}
	if !isLabel(deployment) { // it would select something else
		return nil, schemas.Invalidf("deployment", "%q is not the value of a label", schemas.Quotable(deployment))
	}
	anchors := policyResource
	if bs.served.sandbox != "" {
		anchors = bs.served.boxResource()
	}
	all, err := bs.api.list(ctx, anchors, labelKind+"="+kindKept+","+labelOf+"="+deployment)
	if err != nil {
		return nil, err
	}
	pods := map[string]podState{} // by box
	if len(all.Items) > 0 {
		found, err := bs.api.list(ctx, podResource, labelKind+"="+kindKept)
		if err != nil {
			return nil, err
		}
		for _, o := range found.Items {
			if s := look(o); !s.leaving && !s.over {
				pods[o.GetLabels()[labelBox]] = s
			}
		}
	}
	boxes := make([]providers.KeptBox, 0, len(all.Items))
	for i := range all.Items {
		o := &all.Items[i]
		pod := pods[o.GetName()]
		boxes = append(boxes, providers.KeptBox{
			Ref: refOf(bs.api.namespace, o.GetName(), identity{box: string(o.GetUID()), pod: pod.uid, container: pod.container}),
			Key: o.GetAnnotations()[noteKey], Account: schemas.AccountID(o.GetAnnotations()[noteAccount]),
			Age: time.Since(o.GetCreationTimestamp().Time), State: stateOf(o, pod.uid != ""),
		})
	}
	return boxes, nil
}

// stateOf returns the state of a kept box by its anchor object.
func stateOf(anchor *unstructured.Unstructured, runs bool) providers.BoxState {
	switch {
	case anchor.GetDeletionTimestamp() != nil || anchor.GetAnnotations()[noteLeaving] != "":
		return providers.BoxEnding
	case runs:
		return providers.BoxRunning
	}
	return providers.BoxPaused
}
