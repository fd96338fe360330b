//go:build linux

package confine

// action is how the filter answers a refused system call.
type action uint8

const (
	refuse  action = iota // EPERM: a plain no
	absent                // ENOSYS: as if the kernel did not have it; libraries then go the older way
	inspect               // its arguments decide, see conditions
)

// none is the number of a call that an architecture does not have.
const none = -1

// rule is one row of the filter: what happens to one system call, and why.
type rule struct {
	name         string
	amd64, arm64 int
	action       action
	why          string
}

// newest is the last system call that was there when this table was written (Linux 6.18). It is the same on both architectures. Later ones
// are answered with ENOSYS until they were reviewed.
const newest = 469

// Reasons that many rows share.
const (
	whyView = "changes what the box sees"
	whyHost = "the host's business"
)

// rules returns the filter's table, without the architecture check. It lists what is refused, because shells and interpreters use too many
// calls to list those that are allowed.
func rules() []rule {
	return []rule{
		{"mount", 165, 40, refuse, whyView},
		{"umount2", 166, 39, refuse, whyView},
		{"pivot_root", 155, 41, refuse, whyView},
		{"chroot", 161, 51, refuse, whyView},
		{"move_mount", 429, 429, refuse, whyView},
		{"open_tree", 428, 428, refuse, whyView},
		{"open_tree_attr", 467, 467, refuse, whyView},
		{"fsopen", 430, 430, refuse, whyView},
		{"fsconfig", 431, 431, refuse, whyView},
		{"fsmount", 432, 432, refuse, whyView},
		{"fspick", 433, 433, refuse, whyView},
		{"mount_setattr", 442, 442, refuse, whyView},
		{"setns", 308, 268, refuse, "joins other namespaces"},
		{"unshare", 272, 97, refuse, "a namespace of one's own gives capabilities, and with them the kernel's rarely tested parts"},
		{"clone", 56, 220, inspect, "as unshare, with flags"},
		{"clone3", 435, 435, absent, "its flags lie in memory, where a filter cannot read them; libc falls back to clone"},

		{"ptrace", 101, 117, refuse, "controls other processes"},
		{"process_vm_readv", 310, 270, refuse, "reads other processes"},
		{"process_vm_writev", 311, 271, refuse, "writes other processes"},
		{"kcmp", 312, 272, refuse, "compares kernel addresses"},
		{"pidfd_getfd", 438, 438, refuse, "takes open files from other processes"},

		{"io_uring_setup", 425, 425, absent, "makes system calls that no filter sees"},
		{"io_uring_enter", 426, 426, absent, "makes system calls that no filter sees"},
		{"io_uring_register", 427, 427, absent, "makes system calls that no filter sees"},

		{"bpf", 321, 280, refuse, "loads code into the kernel"},
		{"perf_event_open", 298, 241, refuse, "observes the kernel and other processes"},
		{"userfaultfd", 323, 282, refuse, "halts the kernel at a chosen place: a tool for exploits"},
		{"add_key", 248, 217, refuse, "keyrings do not know namespaces"},
		{"request_key", 249, 218, refuse, "keyrings do not know namespaces"},
		{"keyctl", 250, 219, refuse, "keyrings do not know namespaces"},
		{"open_by_handle_at", 304, 265, refuse, "opens files outside of the view"},
		{"name_to_handle_at", 303, 264, refuse, "names files outside of the view"},
		{"fanotify_init", 300, 262, refuse, "watches whole file systems"},
		{"fanotify_mark", 301, 263, refuse, "watches whole file systems"},
		{"lookup_dcookie", 212, 18, refuse, "names files outside of the view"},

		{"kexec_load", 246, 104, refuse, "replaces the kernel"},
		{"kexec_file_load", 320, 294, refuse, "replaces the kernel"},
		{"init_module", 175, 105, refuse, "loads code into the kernel"},
		{"finit_module", 313, 273, refuse, "loads code into the kernel"},
		{"delete_module", 176, 106, refuse, "takes code out of the kernel"},
		{"create_module", 174, none, refuse, "loads code into the kernel"},
		{"get_kernel_syms", 177, none, refuse, "reads kernel addresses"},
		{"query_module", 178, none, refuse, "reads kernel addresses"},
		{"reboot", 169, 142, refuse, whyHost},
		{"swapon", 167, 224, refuse, whyHost},
		{"swapoff", 168, 225, refuse, whyHost},
		{"settimeofday", 164, 170, refuse, "the host's clock"},
		{"clock_settime", 227, 112, refuse, "the host's clock"},
		{"clock_adjtime", 305, 266, refuse, "the host's clock"},
		{"adjtimex", 159, 171, refuse, "the host's clock"},
		{"acct", 163, 89, refuse, whyHost},
		{"quotactl", 179, 60, refuse, whyHost},
		{"quotactl_fd", 443, 443, refuse, whyHost},
		{"syslog", 103, 116, refuse, "reads the kernel's log"},
		{"sethostname", 170, 161, refuse, "the box's name is ours"},
		{"setdomainname", 171, 162, refuse, "the box's name is ours"},
		{"vhangup", 153, 58, refuse, "acts on terminals"},
		{"nfsservctl", 180, 42, refuse, "long gone, and never for a box"},
		{"_sysctl", 156, none, refuse, "long gone, and never for a box"},
		{"uselib", 134, none, refuse, "an old loader of code with a history of holes"},
		{"iopl", 172, none, refuse, "reaches hardware"},
		{"ioperm", 173, none, refuse, "reaches hardware"},
		{"modify_ldt", 154, none, refuse, "16-bit segments: needed by emulators only, with a history of holes"},

		{"move_pages", 279, 239, refuse, "moves memory between nodes, also of others"},
		{"migrate_pages", 256, 238, refuse, "moves memory between nodes, also of others"},
		{"mbind", 237, 235, refuse, "moves memory between nodes"},
		{"set_mempolicy", 238, 237, refuse, "moves memory between nodes"},
		{"set_mempolicy_home_node", 450, 450, refuse, "moves memory between nodes"},
		{"personality", 135, 92, inspect, "switches address randomisation off; asking is free"},

		{"ioctl", 16, 29, inspect, "types into terminals (TIOCSTI, TIOCLINUX), loads line disciplines (TIOCSETD)"},
		{"socket", 41, 198, inspect, "only address families that ordinary programs use"},
		{"socketpair", 53, 199, inspect, "AF_UNIX only: nothing else has pairs but for rarely tested families"},
	}
}

// rows returns the rules that the options add.
func (o SeccompOptions) rows() []rule {
	const unseen, host = "memory that no process maps escapes the watchdog", "the host's own where there is no ipc namespace"
	var table []rule
	if o.DenyUnseen {
		table = append(table, rule{"memfd_create", 319, 279, absent, unseen}, rule{"memfd_secret", 447, 447, absent, unseen})
	}
	if o.DenySysV {
		table = append(table, rule{"shmget", 29, 194, absent, host})
	}
	if o.DenyUnseen || o.DenySysV {
		table = append(table, rule{"semget", 64, 190, absent, unseen}, rule{"msgget", 68, 186, absent, unseen})
	}
	if o.DenyTruncate {
		const cuts = "cuts files that an old Landlock keeps from being written"
		table = append(table, rule{"truncate", 76, 45, refuse, cuts}, rule{"open", 2, none, inspect, cuts}, rule{"openat", 257, 56, inspect, cuts},
			rule{"openat2", 437, 437, absent, "its flags lie in memory, where a filter cannot read them"})
	}
	return table
}

// number returns the number of r's call on an architecture, the constant none if there is none.
func (r rule) number(arch uint32) int {
	switch arch {
	case archAMD64:
		return r.amd64
	case archARM64:
		return r.arm64
	default:
		return none
	}
}
