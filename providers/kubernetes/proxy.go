package kubernetes

import (
	"context"
	"crypto/ed25519"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// ProxyPort is where the proxy listens, and its service.
	ProxyPort = 3128
	// serviceFor is how long what the cluster says of the proxy's service is used.
	serviceFor = time.Minute
	// passFor is how long a pass is good in a kept box: as long as a job runs that says nothing else, and longer than any command.
	passFor = schemas.DefaultJobLifetime + time.Hour
)

var serviceResource = schema.GroupVersionResource{Version: "v1", Resource: "services"} //nolint:gochecknoglobals // the name of a resource never changes

// Egress configures the proxy through which boxes reach host names: pods that run "sandjet egress" behind a service, in a namespace of
// their own.
type Egress struct {
	Namespace, Service string
	// Key signs what boxes show there. The proxy knows its public half.
	Key ed25519.PrivateKey
	// Private are the networks that boxes may reach though they are not public, where their own network lists them too. The proxy says the
	// same.
	Private []netip.Prefix
}

// proxies finds the egress proxy and configures runs to use it.
type proxies struct {
	api    *api
	egress *Egress // nil: there is none

	mu    sync.Mutex
	known *proxy // as the cluster said last
	until time.Time
}

// proxy is the address of the egress proxy, and how to select its pods in a policy.
type proxy struct {
	address   netip.AddrPort
	namespace string
	selector  object // of its pods
}

// rule returns the egress rule that allows connections to the proxy's pods.
func (x *proxy) rule() object {
	return object{
		"ports": []any{object{"protocol": "TCP", "port": int64(ProxyPort)}},
		"to": []any{object{
			"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": x.namespace}},
			"podSelector":       object{"matchLabels": x.selector},
		}},
	}
}

// of returns the proxy that a network needs; nil if it needs none. Codes: unavailable, denied, unsupported (there is none).
func (x *proxies) of(ctx context.Context, n schemas.Network) (*proxy, error) {
	if len(n.AllowDomains) == 0 {
		return nil, nil //nolint:nilnil // most need none
	}
	if err := refuseNetwork(n, x.egress); err != nil {
		return nil, err
	}
	x.mu.Lock()
	known, until := x.known, x.until
	x.mu.Unlock()
	if known != nil && time.Now().Before(until) {
		return known, nil
	}
	found, err := x.find(ctx)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.known, x.until = found, time.Now().Add(serviceFor)
	return found, nil
}

// find reads the proxy's service from the cluster.
func (x *proxies) find(ctx context.Context) (*proxy, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e := x.egress
	found, err := x.api.client.Resource(serviceResource).Namespace(e.Namespace).Get(ctx, e.Service, metav1.GetOptions{})
	if err != nil {
		err = explain("find the egress proxy", err)
		return nil, schemas.Wrap(schemas.Unavailable, "run", "the egress proxy's service "+e.Namespace+"/"+e.Service+
			" cannot be read: apply deploy/kubernetes/egress.yaml, or mend --kubernetes-egress", err)
	}
	at, err := proxyIn(*found)
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "run", "the service "+e.Namespace+"/"+e.Service+" is none of an egress proxy: "+
			schemas.Public(err).Message, err)
	}
	return at, nil
}

// proxyIn returns the proxy that a service object describes. Code: invalid.
func proxyIn(o unstructured.Unstructured) (*proxy, error) {
	text, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP")
	address, err := netip.ParseAddr(text)
	if err != nil {
		return nil, schemas.Invalidf("", "it has no address of its own (clusterIP)")
	}
	selector, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector")
	if len(selector) == 0 { // a policy with it would open the whole namespace
		return nil, schemas.Invalidf("", "it selects no pods")
	}
	x := &proxy{address: netip.AddrPortFrom(address, ProxyPort), namespace: o.GetNamespace(), selector: object{}}
	for name, value := range selector {
		x.selector[name] = value
	}
	ports, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
	for _, entry := range ports {
		m, _ := entry.(map[string]any)
		if port, _, _ := unstructured.NestedInt64(m, "port"); port == ProxyPort {
			return x, nil
		}
	}
	return nil, schemas.Invalidf("", "it has no port %d", ProxyPort)
}

// through adds to the runner's input the variables by which a command finds its proxy; it returns data unchanged if the command needs
// none. Declared variables take precedence. The pass in the proxy's URL is valid for connections from this pod only.
func (x *proxies) through(ctx context.Context, t target, token string, data []byte, cmd providers.Command) ([]byte, error) {
	by, err := x.of(ctx, cmd.Network)
	if err != nil || by == nil {
		return data, err
	}
	life := passFor
	if t.fresh {
		life = cmd.Timeout + cmd.Grace + spareTime
	}
	if len(t.pod.addresses) == 0 {
		return nil, schemas.OpErrorf(schemas.Unavailable, "run", "the cluster does not say which address the sandbox has")
	}
	pass := egress.Pass{
		Sandbox: t.pod.uid, Account: cmd.Spec.Account, From: t.pod.addresses, Until: time.Now().Add(life).Unix(), Network: cmd.Network,
	}
	text, err := pass.Sign(x.egress.Key)
	if err != nil {
		return nil, err
	}
	at := url.URL{Scheme: "http", User: url.UserPassword(egress.PassUser, text),
		Host: net.JoinHostPort(by.address.Addr().String(), strconv.Itoa(int(by.address.Port())))}
	env := proxyVariables(at.String())
	maps.Copy(env, cmd.Spec.Env)
	maps.Copy(env, cmd.Env)
	cmd.Env = env
	return runnerInput(token, cmd, t.fresh)
}

// proxyVariables returns the environment variables that configure a proxy.
func proxyVariables(at string) map[string]string {
	const own = "localhost,127.0.0.1,::1"
	return map[string]string{
		"HTTP_PROXY": at, "HTTPS_PROXY": at, "http_proxy": at, "https_proxy": at, "NO_PROXY": own, "no_proxy": own, "NODE_USE_ENV_PROXY": "1",
	}
}

// check checks for the egress proxy.
func (x *proxies) check(ctx context.Context) Finding {
	if x.egress == nil {
		return Finding{
			OK: true, Says: "no egress proxy is named: sandboxes that list domains are refused",
			Remedy: "for domains: apply deploy/kubernetes/egress.yaml, and name its service with --kubernetes-egress",
		}
	}
	found, err := x.find(ctx)
	if err != nil {
		return Finding{Says: "sandboxes that list domains cannot run: " + schemas.Public(err).Message, Remedy: "see docs/guides/kubernetes.md"}
	}
	return Finding{OK: true, Says: "sandboxes that list domains reach them by the egress proxy at " + found.address.String()}
}
