package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Labels and annotations of our objects. A prefix of our own: agent-sandbox drops labels under its two.
const (
	labelBox       = "sandjet/box"        // the box's name, on all that belongs to it
	labelKind      = "sandjet/kind"       // kept, run or workspace
	labelWorkspace = "sandjet/workspace"  // of a workspace's claim: its hash
	labelOf        = "sandjet/deployment" // of a kept box, on what stands for it: the log whose records speak of it
	noteAccount    = "sandjet/account"
	noteKey        = "sandjet/key"   // with which a kept box was reserved
	noteUntil      = "sandjet/until" // when an unused box ends, if the cluster does not end it by itself
	noteMade       = "sandjet/made"
	noteLeaving    = "sandjet/leaving" // on the policy of a pod's box that is being released

	kindKept      = "kept"
	kindRun       = "run"
	kindWorkspace = "workspace"
	kindPool      = "pool"
)

const hashLength = 20 // hex digits: the name of a claim made of it is still a label

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// hashOf is a part of a name that stands for some texts.
func hashOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hexOf(sum[:])[:hashLength]
}

// boxName is the name of the box kept under a key.
func boxName(account schemas.AccountID, key string) string {
	return "box-" + hashOf(string(account), key)
}

// homeName is the name of the claim of a kept box's home.
func homeName(box string) string { return "home-" + box }

// workspaceName is the name of a workspace's claim.
func workspaceName(namespace string) string { return "ws-" + hashOf(namespace) }

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// isName reports whether s can name an object.
func isName(s string) bool { return dnsLabel.MatchString(s) }

// checkMount refuses what is no single component of a path.
func checkMount(m providers.Mount) error {
	if ns := m.Namespace; ns == "" || ns == "." || ns == ".." || strings.ContainsAny(ns, "/\x00:") || len(ns) > 255 {
		return schemas.Invalidf("mount", "a namespace is one path component, not %q", schemas.Quotable(ns))
	}
	return nil
}

// identity distinguishes a box from a later one of the same name: of the object that stands for it, of its pod and of the container. It is
// a Ref's Epoch.
type identity struct {
	box, pod, container string
}

// String is the identity as a Ref's Epoch.
func (i identity) String() string { return i.box + "." + i.pod + "." + i.container }

// parseEpoch reads an Epoch; one of another provider has no parts.
func parseEpoch(s string) identity {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return identity{}
	}
	return identity{parts[0], parts[1], parts[2]}
}

// parseRef returns the name of a box of ours in a namespace.
func parseRef(in string, ref schemas.Ref) (name string, id identity, ok bool) {
	namespace, name, found := strings.Cut(ref.ID, "/")
	id = parseEpoch(ref.Epoch)
	return name, id, found && namespace == in && isName(name) && id.box != ""
}

// refOf names a box in a namespace.
func refOf(namespace, name string, id identity) schemas.Ref {
	return schemas.Ref{ID: namespace + "/" + name, Epoch: id.String()}
}

var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// isLabel reports whether s can be the value of a label.
func isLabel(s string) bool { return labelValue.MatchString(s) }
