package bucket

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestTenantsEndpointsArePublic: an endpoint of a tenant's choice must not lead this process to what only it can reach.
func TestTenantsEndpointsArePublic(t *testing.T) {
	private := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.0.0/16")}
	for address, fine := range map[string]bool{
		"52.95.110.1": true, "2600:9000::1": true, "10.1.2.3": true, "::ffff:10.1.2.3": true,
		"10.2.0.1": false, "127.0.0.1": false, "::1": false, "::ffff:127.0.0.1": false, "169.254.169.254": false, "192.168.1.1": false,
		"fe80::1%eth0": false, "100.64.0.1": false, "0.0.0.0": false,
	} {
		if err := allowed(netip.MustParseAddr(address), private); (err == nil) != fine {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, o := range []Options{
		{Bucket: "b", Credentials: Static("a", "b", ""), Public: true, Endpoint: "http://s3.example.com"},
		{Bucket: "b", Credentials: Static("a", "b", ""), Endpoint: "s3.example.com"},
		{Bucket: "b"},
	} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v was opened", o.Endpoint)
		}
	}
}

// TestConnectionsAreShared by buckets that are opened one after the other, and are those of one kind of buckets.
func TestConnectionsAreShared(t *testing.T) {
	var made atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			made.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	options := Options{Bucket: "b", Credentials: Static("a", "b", ""), Endpoint: server.URL, PathStyle: true}
	look := func(o Options) {
		t.Helper()
		b, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if _, err := b.Head(t.Context(), "x"); schemas.CodeOf(err) != schemas.NotFound {
			t.Fatal(err)
		}
	}
	for range 3 {
		look(options)
	}
	if n := made.Swap(0); n != 3 {
		t.Errorf("%d connections of buckets with their own", n)
	}
	options.Connections = NewConnections(false, nil)
	for range 3 {
		look(options)
	}
	if n := made.Load(); n != 1 {
		t.Errorf("%d connections of buckets that share them", n)
	}
	options.Connections = NewConnections(true, nil)
	if _, err := Open(options); err == nil {
		t.Error("a bucket of the operator has connections of those of accounts")
	}
	options.Public, options.Endpoint = true, "https://s3.example.com"
	options.Connections = NewConnections(false, nil)
	if _, err := Open(options); err == nil {
		t.Error("a bucket of an account has connections of those of the operator")
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := NewConnections(true, nil).transport.RoundTrip(r)
	if err == nil {
		_ = res.Body.Close()
	}
	if schemas.CodeOf(err) != schemas.Denied {
		t.Errorf("a private address by shared connections: %v", err)
	}
}
