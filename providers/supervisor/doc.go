// Package supervisor gives background jobs to providers that keep boxes and have no jobs of their own: one bash program, started by an
// ordinary run, watches over each job from inside of the box, and further runs of the same program control it.
//
// # What it needs
//
// A box whose processes live on when the run that started them has ended; bash 4.2, coreutils or busybox,
// grep and a readable /proc in it. Setsid is used where it is there. To report an end it
// takes curl, GNU wget, python3 or, for plain http, bash alone, whichever is there first. A box that
// lacks something is refused with code unsupported; the message names what is missing.
//
// # The processes
//
//	guardian     session of its own: lifetime, stop, leftovers, the end, the callback
//	├─ logger    group of its own: what the job prints, in segments
//	└─ minder    group of its own: waits for the job, whose parent it is
//	   └─ job    session of its own, with SANDJET_JOB=<instance> in its environment
//
// The job's script is a child: no exit, exec, syntax error or signal of it can keep its end from being recorded. When it kills its parent,
// the guardian still sees its end, but its exit code is unknown: it is lost, with the reason. When it kills the guardian, the next look at
// the job concludes. What it leaves behind is found by the mark in the environment and by its session; only a process that clears its
// environment and leaves the session too is not found. A process is only signalled when its time of start and the kernel's boot are those
// that were noted: a number that was given to another process is left alone.
//
// The supervisor's processes are the job's own user's: code that runs in a box can read and end its jobs, as everything else in that box.
// What they cannot do is to reach another box or account.
//
// # The directory
//
// Each job has a directory <jobs>/<job id> that only its user may read. Jobs is Options.JobsDir, else
// .sandjet-jobs in HOME, else in TMPDIR.
//
//	log.<offset>   what it printed, from that byte on: segments, of which the oldest are dropped
//	exit           how it ended, written once: code, stopped, timed_out, lost, reason, children_left, finished
//	instance       a random name of this start
//	leader         pid, time of start and boot id of the job; guardian and minder have the same
//	heartbeat      time since boot in 1/100 s, written every 3 s while it runs
//	params         lifetime, grace, bytes reported, waits of the callback, bytes kept, umask, time of start, setsid
//	control        a pipe: "stop <1/100 s>", "eof" and what the minder says
//	stdin, output  the job's pipes
//	fed, eof       the first input is written; the input is closed
//	reported       the last answer to the callback
//
// The directory stays until the box ends; a finished job keeps its log: at most schemas.MaxJobOutput,
// and at most a third of what was free on its disk when it began.
package supervisor
