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

// hashOf returns a hash of the texts for use in names.
func hashOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hexOf(sum[:])[:hashLength]
}

// boxName returns the name of the box kept under a key.
func boxName(account schemas.AccountID, key string) string {
	return "box-" + hashOf(string(account), key)
}

// homeName returns the name of the claim for a kept box's home.
func homeName(box string) string { return "home-" + box }

// workspaceName returns the name of a workspace's claim.
func workspaceName(namespace string) string { return "ws-" + hashOf(namespace) }

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// isName reports whether s is valid as the name of an object.
func isName(s string) bool { return dnsLabel.MatchString(s) }

// checkMount returns an error unless the mount's namespace is one path component. Code: invalid.
func checkMount(m providers.Mount) error {
	if ns := m.Namespace; ns == "" || ns == "." || ns == ".." || strings.ContainsAny(ns, "/\x00:") || len(ns) > 255 {
		return schemas.Invalidf("mount", "a namespace is one path component, not %q", schemas.Quotable(ns))
	}
	return nil
}

// identity distinguishes a box from a later one of the same name. It consists of the UIDs of its anchor object and its pod, and the
// container's id, and is the Epoch of its Ref.
type identity struct {
	box, pod, container string
}

// String returns the identity as the Epoch of a Ref.
func (i identity) String() string { return i.box + "." + i.pod + "." + i.container }

// parseEpoch parses an Epoch; it is the zero identity if another provider made it.
func parseEpoch(s string) identity {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return identity{}
	}
	return identity{parts[0], parts[1], parts[2]}
}

// parseRef returns the name and the identity of the box that a ref names, false if the ref names no box of this namespace.
func parseRef(in string, ref schemas.Ref) (name string, id identity, ok bool) {
	namespace, name, found := strings.Cut(ref.ID, "/")
	id = parseEpoch(ref.Epoch)
	return name, id, found && namespace == in && isName(name) && id.box != ""
}

// refOf returns the ref of a box in a namespace.
func refOf(namespace, name string, id identity) schemas.Ref {
	return schemas.Ref{ID: namespace + "/" + name, Epoch: id.String()}
}

var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// isLabel reports whether s is valid as the value of a label.
func isLabel(s string) bool { return labelValue.MatchString(s) }
