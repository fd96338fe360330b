package schemas

// GuardPolicy says which commands the bash guard refuses before they are started. The guard is a
// courtesy to the model; what a command can reach is the provider's matter.
type GuardPolicy string

// The policies. The zero value means [GuardDurable].
const (
	GuardStrict  GuardPolicy = "strict"  // paths outside the workspace, read or written
	GuardDurable GuardPolicy = "durable" // writes that would stay outside the workspace, and walks over the whole filesystem
	GuardOff     GuardPolicy = "off"     // nothing
)

// GuardPolicies lists every policy, the strictest first.
func GuardPolicies() []GuardPolicy { return []GuardPolicy{GuardStrict, GuardDurable, GuardOff} }
