package bucket

import (
	"net/netip"
	"testing"
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
