package schemas

import (
	"slices"
	"strings"
	"time"
)

// Profile is what a provider can do, as data. It is the only statement of that: a build has one for each of
// its providers, which is the most that it can keep anywhere, and each worker says the one of its own host in
// its lease. What a profile does not list is refused when a sandbox is made and when a call is admitted, and
// never silently widened. The zero value of each field promises nothing.
type Profile struct {
	// Name is part of the subjects of the provider's calls: letters, digits and dashes. It never changes.
	Name string `json:"name"`
	// Networks are the modes that it enforces.
	Networks []NetworkMode `json:"networks"`
	// MaxTimeout is the longest run. The general limit, [MaxTimeout], holds as well.
	MaxTimeout Duration `json:"max_timeout"`
	// MaxMemory is the most memory of a sandbox, in bytes.
	MaxMemory int64 `json:"max_memory"`
	// MaxOutput is the most bytes of stdout and of stderr that a result has.
	MaxOutput int `json:"max_output"`
	// Persistent says that it keeps sandboxes between runs. Then it has hooks, ends by age and idleness too.
	Persistent bool `json:"persistent,omitzero"`
	// Jobs says that commands may continue in the background of a persistent instance.
	Jobs bool `json:"jobs,omitzero"`
	// JobsEndWithWorker says that persistent instances, and jobs in them, end with the process that made them.
	JobsEndWithWorker bool `json:"jobs_end_with_worker,omitzero"`
	// Pause is what stays in a persistent instance that is paused. Empty: it pauses none.
	Pause PauseKeeps `json:"pause,omitzero"`
	// Storage says whether workspaces on S3 can be used. Empty means [StorageNo].
	Storage StorageAccess `json:"storage,omitzero"`
	// ReadsMounted says that a mount shows what a command has just written to a workspace on S3, where the bucket does not have it yet, and
	// that calls without a sandbox read through one.
	ReadsMounted bool `json:"reads_mounted,omitzero"`
	// OnHost says that its sandboxes share the host of their worker, so that the operator's limits for hosts hold.
	OnHost bool `json:"on_host,omitzero"`
	// Options are those of config.options that it takes.
	Options []ProfileOption `json:"options,omitzero"`
	// Isolation is what a worker found on its host. A build cannot know it: there it is the zero value.
	Isolation Isolation `json:"isolation,omitzero"`
	// Credentials says that variables can be bound to hosts, so that runs do not have their values.
	Credentials bool `json:"credentials,omitzero"`
	// MemoryLimit, PidsLimit and CPULimit say that it enforces a sandbox's limit.
	MemoryLimit bool `json:"memory_limit,omitzero"`
	PidsLimit   bool `json:"pids_limit,omitzero"`
	CPULimit    bool `json:"cpu_limit,omitzero"`
	// Unattended says that nothing is known of a run before it has ended, and that it cannot be ended: what it prints comes with its end, no
	// more than MaxOutput of it, and a run whose call is cancelled continues until its time limit.
	Unattended bool `json:"unattended,omitzero"`
	// ExclusiveWorkspaces says that a workspace is in one sandbox at a time: runs of other sandboxes that use it are refused as
	// exhausted until that one has ended.
	ExclusiveWorkspaces bool `json:"exclusive_workspaces,omitzero"`
	// Shell runs the scripts: bash or sh.
	Shell string `json:"shell,omitzero"`
}

// PauseKeeps says what stays in a persistent instance that is paused.
type PauseKeeps string

// The answers of [Profile.Pause].
const (
	PauseKeepsProcesses PauseKeeps = "processes" // its processes continue where they were, with their memory, which stays taken
	PauseKeepsFiles     PauseKeeps = "files"     // its home; processes end, and files elsewhere in it are lost
)

// StorageAccess says whether a workspace on S3 can be used in a provider's sandboxes.
type StorageAccess string

// The answers of [Profile.Storage].
const (
	StorageYes    StorageAccess = "yes"                 // the operator's bucket is mounted
	StorageOption StorageAccess = "with " + OptionMount // only when the sandbox has that option
	StorageCopy   StorageAccess = "copied in and out"   // also a bucket of the account's own
	StorageNo     StorageAccess = "no"
)

// OptionMount is the option of a sandbox that mounts its account's buckets.
const OptionMount = "mountAwsS3Buckets"

// ProfileOption is one of config.options that a provider takes.
type ProfileOption struct {
	Name string  `json:"name"`
	Most float64 `json:"most,omitzero"` // of a whole number from 1 on; 0: it is true or false
	Kept bool    `json:"kept,omitzero"` // only for a persistent sandbox
}

// Keeps reports the first thing that a record asks of a sandbox and the provider cannot do. It costs little, so
// that it may be asked of every call. Code: unsupported, with the field of the record and the remedy.
func (p Profile) Keeps(s Sandbox) error {
	cannot := func(field, what, remedy string) error {
		return &Error{Code: Unsupported, Field: "sandbox", Message: "config." + field + " of " + Quotable(s.Name) + ": the provider " + p.Name +
			" " + what + " where it runs" + ": " + remedy}
	}
	switch {
	case s.Network.Mode != "" && !slices.Contains(p.Networks, s.Network.Mode):
		return cannot("network.mode", "does not keep the mode "+Quotable(string(s.Network.Mode)), "use "+p.networks())
	case len(s.Network.Credentials) > 0 && !p.Credentials:
		return cannot("network.credentials", "cannot keep the value of a variable from its sandboxes", "leave them out, or use another provider")
	case s.MemoryLimit > p.MaxMemory:
		return cannot("memoryLimit", "does not have that much memory", "use less")
	case s.Persistent && !p.Persistent:
		return cannot("persistent", "keeps no sandbox between calls", "leave it out")
	}
	return nil
}

// Reaches reports why the files of a workspace on S3 cannot be used in a sandbox of the provider; nil where they can, and for any
// other workspace. Code: unsupported, with the field of the workspace's record and the remedy.
func (p Profile) Reaches(w Workspace, s Sandbox) error {
	if w.Storage == "" {
		return nil
	}
	cannot := func(field, what, remedy string) error {
		return &Error{Code: Unsupported, Field: "config.storage." + field,
			Message: "of workspace " + Quotable(w.Name) + ": the provider " + p.Name + " " + what + ": " + remedy}
	}
	mounts, _ := s.Options[OptionMount].(bool)
	switch access := p.storage(); {
	case access == StorageNo:
		return cannot("provider", "does not reach files on "+Quotable(w.Storage)+" where it runs",
			"use a sandbox of another provider, or leave the storage out; where the build does, its operator names a bucket")
	case access == StorageOption && !mounts:
		return cannot("provider", "reaches files on "+Quotable(w.Storage)+" from sandboxes with config.options."+OptionMount+" alone",
			"set it in "+Quotable(s.Name))
	case access != StorageCopy && w.Bucket.Name != "":
		return cannot("bucket", "mounts its operator's bucket and no other",
			"leave the bucket out, or use a sandbox of the provider local or docker")
	}
	return nil
}

// Within reports the first thing that p promises and declared does not: what a worker says of its host may be
// less than what its build says of the provider, and never more. Code: internal.
func (p Profile) Within(declared Profile) error {
	more := func(field string) error {
		return OpErrorf(Internal, "profile", "the provider %s says more of %s than its build declares", p.Name, field)
	}
	for _, n := range p.Networks {
		if !slices.Contains(declared.Networks, n) {
			return more("networks")
		}
	}
	for _, o := range p.Options {
		if !slices.Contains(declared.Options, o) {
			return more("options")
		}
	}
	switch {
	case p.Name != declared.Name:
		return more("its name")
	case p.MaxTimeout > declared.MaxTimeout:
		return more("max_timeout")
	case p.MaxMemory > declared.MaxMemory:
		return more("max_memory")
	case p.MaxOutput > declared.MaxOutput:
		return more("max_output")
	case p.Persistent && !declared.Persistent:
		return more("persistent")
	case p.Jobs && !declared.Jobs:
		return more("jobs")
	case p.Credentials && !declared.Credentials:
		return more("credentials")
	case p.Pause != "" && p.Pause != declared.Pause:
		return more("pause")
	case !p.Unattended && declared.Unattended:
		return more("unattended: it would be heard and ended")
	case !p.ExclusiveWorkspaces && declared.ExclusiveWorkspaces:
		return more("exclusive_workspaces: sandboxes would share them")
	case p.OnHost != declared.OnHost:
		return more("on_host")
	case p.storage() != StorageNo && p.storage() != declared.storage():
		return more("storage")
	case p.ReadsMounted && !declared.ReadsMounted:
		return more("reads_mounted")
	}
	return nil
}

func (p Profile) storage() StorageAccess {
	if p.Storage == "" {
		return StorageNo
	}
	return p.Storage
}

func (p Profile) networks() string {
	names := make([]string, len(p.Networks))
	for i, n := range p.Networks {
		names[i] = string(n)
	}
	return strings.Join(names, " or ")
}

// LongestRun is how long one run may take.
func (p Profile) LongestRun() time.Duration { return min(time.Duration(p.MaxTimeout), MaxTimeout) }

// Catalog is the profiles of a build's providers. The first is that of sandboxes whose records name none.
type Catalog []Profile

// Default is the name of the first provider, empty where there is none.
func (c Catalog) Default() string {
	if len(c) == 0 {
		return ""
	}
	return c[0].Name
}

// Names lists the providers in the order of the catalog.
func (c Catalog) Names() []string {
	names := make([]string, len(c))
	for i, p := range c {
		names[i] = p.Name
	}
	return names
}

// Find returns the profile of a provider, and whether this build has it.
func (c Catalog) Find(name string) (Profile, bool) {
	i := slices.IndexFunc(c, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return c[i], true
}
