package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sandjet/sandjet/schemas"
)

// What a policy lets out, as JSON.
func TestEgress(t *testing.T) {
	const names = `{"ports":[{"port":53,"protocol":"UDP"},{"port":53,"protocol":"TCP"}]}`
	const toProxy = `{"ports":[{"port":3128,"protocol":"TCP"}],"to":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"egress"}},` +
		`"podSelector":{"matchLabels":{"app":"proxy"}}}]}`
	by := &proxy{namespace: "egress", selector: object{"app": "proxy"}}
	for name, c := range map[string]struct {
		network schemas.Network
		by      *proxy
		want    string
	}{
		"deny-all":          {schemas.Network{Mode: schemas.DenyAll}, nil, `null`},
		"nothing said":      {schemas.Network{}, nil, `null`},
		"names, and no DNS": {schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"web.example"}}, by, `[` + toProxy + `]`},
		"names and ranges": {
			schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"web.example"}, AllowCIDRs: []string{"192.0.2.0/24"}}, by,
			`[` + toProxy + `,{"to":[{"ipBlock":{"cidr":"192.0.2.0/24"}}]}]`,
		},
		"allow-all": {
			schemas.Network{Mode: schemas.AllowAll}, nil,
			`[` + names + `,{"to":[{"ipBlock":{"cidr":"0.0.0.0/0","except":["169.254.0.0/16"]}},{"ipBlock":{"cidr":"::/0","except":["fe80::/10"]}}]}]`,
		},
		"ranges": {
			schemas.Network{
				Mode: schemas.Restricted, AllowCIDRs: []string{"192.0.2.7/24", "2001:db8::/32"},
				DenyCIDRs: []string{"192.0.2.128/25", "10.0.0.0/8"},
			}, nil,
			`[` + names + `,{"to":[{"ipBlock":{"cidr":"192.0.2.0/24","except":["192.0.2.128/25"]}},{"ipBlock":{"cidr":"2001:db8::/32"}}]}]`,
		},
		"a denied range around it": {schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"169.254.169.254/32"}}, nil, `[` + names + `]`},
		"no ranges":                {schemas.Network{Mode: schemas.Restricted}, nil, `[` + names + `]`},
	} {
		if got, err := json.Marshal(waysOut(c.network, c.by)); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// FuzzRecords cuts a run's output into pieces: what is handed on does not depend on where, and is all but the records.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("begin\x00\x01tok"), uint8(3))
	f.Add([]byte("\x00\x00\x01tokS\n"), uint8(1))
	f.Add([]byte("\x00\x01tokE 3 1 0 17\n"), uint8(2))
	f.Add([]byte("\x00\x01tok"+strings.Repeat("x", 300)), uint8(7))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		read := func(n int) (out []byte, v verdict) {
			r := newRecords("tok", func(b []byte) { out = append(out, b...) }, v.read)
			for p := range slices.Chunk(data, n) {
				if got, err := r.Write(p); got != len(p) || err != nil {
					t.Fatalf("%d, %v", got, err)
				}
			}
			r.flush()
			return out, v
		}
		whole, v1 := read(max(1, len(data)))
		pieces, v2 := read(max(1, int(piece)))
		if !bytes.Equal(whole, pieces) || v1 != v2 {
			t.Errorf("%q and %q, %+v and %+v", whole, pieces, v1, v2)
		}
		if !bytes.Contains(data, []byte("\x00\x01tok")) && !bytes.Equal(whole, data) {
			t.Errorf("%q became %q", data, whole)
		}
	})
}

// FuzzLook reads what a cluster says of a pod.
func FuzzLook(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a","uid":"u"},"status":{"phase":"Running","containerStatuses":[{"name":"main","ready":true,"containerID":"x://y","state":{"running":{}}}]}}`))
	f.Add([]byte(`{"status":{"phase":"Failed","reason":"Evicted","containerStatuses":"none"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o map[string]any
		if utiljson.Unmarshal(data, &o) != nil || o == nil {
			return
		}
		if s := look(unstructured.Unstructured{Object: o}); s.ready && (s.over || s.leaving || s.container == "") {
			t.Errorf("%+v", s)
		}
	})
}

func TestRefsOfOthersAreNone(t *testing.T) {
	id := identity{"b", "p", "c"}
	if name, got, ok := parseRef("here", refOf("here", "box-1", id)); !ok || name != "box-1" || got != id {
		t.Errorf("%s, %+v, %v", name, got, ok)
	}
	for _, ref := range []schemas.Ref{
		{}, {ID: "box-1", Epoch: "a.b.c"}, {ID: "there/box-1", Epoch: "a.b.c"}, {ID: "here/../x", Epoch: "a.b.c"},
		{ID: "here/box-1", Epoch: "a.b"},
	} {
		if _, _, ok := parseRef("here", ref); ok {
			t.Errorf("%+v was taken", ref)
		}
	}
}

func TestPodSpecIsHardened(t *testing.T) {
	m := manifests{opt: Options{Image: "i", RuntimeClass: "gvisor", UserNamespaces: true}.filled()}
	b, err := json.Marshal(m.podSpec(box{name: "n", kind: kindRun}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"automountServiceAccountToken":false`, `"runAsNonRoot":true`, `"runAsUser":1000`, `"drop":["ALL"]`, `"type":"RuntimeDefault"`, `"readOnlyRootFilesystem":true`,
		`"allowPrivilegeEscalation":false`, `"limits":{"cpu":"1000m","ephemeral-storage":"10737418240","memory":"1073741824"}`, `"runtimeClassName":"gvisor"`, `"hostUsers":false`,
		fmt.Sprintf(`"terminationGracePeriodSeconds":%d`, graceOfPod), `"restartPolicy":"Never"`, `"enableServiceLinks":false`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
}
