package kubernetes

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandjet/sandjet/schemas"
)

// LoadConfig returns the configuration for reaching a cluster: from the named file, otherwise from the files in KUBECONFIG or
// ~/.kube/config, otherwise from a pod's service account. Context is a context of the file; empty: its current one. Code: invalid.
func LoadConfig(file, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loaded.ClientConfig()
	if raw, rawErr := loaded.RawConfig(); err != nil && rawErr == nil {
		wanted := cmp.Or(context, raw.CurrentContext)
		if _, there := raw.Contexts[wanted]; wanted != "" && !there {
			return nil, schemas.Invalidf("kubernetes-context", "there is no context %q: use one of %q, or another file of clusters",
				schemas.Quotable(wanted), slices.Sorted(maps.Keys(raw.Contexts)))
		}
	}
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "kubernetes-config",
			"there is no configuration of a cluster: name a file, or run inside of one", err)
	}
	return config, nil
}
