// Package e2b answers the clients of E2B (npm: e2b, @e2b/code-interpreter): a sandbox is a session with an end of its own, a command is a
// call on the log, or a background job where it has a standard input or no time limit within that of calls. Code is a call that asks a
// kernel, which is a background job. What the package cannot do it answers with 501 and a sentence.
//
// The wire is that of the client: JSON for the control plane, Connect's JSON for what is in a sandbox
// (https://connectrpc.com/docs/protocol), bodies of files as they are. Methods lists what of it is served.
//
// # Sessions and calls
//
// The flag --e2b switches this package on.
//
//   - A sandbox is a session of /v1/sandbox with a lease (when the sandbox ends, its metadata and variables), which is in the session's
//     record, so there is one record and one limit. Gateways end a sandbox that has expired, repeating steps if need be; no request
//     reaches it from then on.
//   - A command is a call, and where it has a standard input or no end within the time limit of calls, a background job. Admission,
//     tenants, limits, cancel and what follows a crash are those of calls.
//   - The number of a process is in the id of its call, chosen by chance. No gateway keeps a table of processes: any of them finds
//     the process, also after a restart. Each process has a conversation of its own, so that a client that connects reads the output of
//     this process from its beginning, and nothing else.
//   - Output is whole, or the stream fails: live pieces without a hole, then from the result what was not live. A command whose
//     end was not seen is never reported with exit code 0.
//   - A context for code is a line in the sandbox's record and a job, a Python that listens on a socket in the sandbox; the line says
//     which of its kernels is the present one, and the id of the job's call follows from that. Code is a call, whose command asks the
//     kernel and prints what it shows. So approvals, limits, cancel and live output are those of calls, any gateway finds the kernel,
//     and two that begin it at once begin one. Feeding code by the job's standard input would need no second process (some 50 ms
//     each), but code would be no call, and its output a part of a log that all codes share.
//   - The token of a sandbox is signed with the keys of attach tokens, for one sandbox, and ends with the API key it was made with.
//     The client has nothing else there.
//   - Files go by the file plane, whose limits and checks they share.
//   - The version that clients are shown (envdVersion) is the lowest that has what is served, so that clients
//     themselves refuse what only later versions have.
//   - Connect's JSON is written here, without a dependency: it is two kinds of frames and a table of codes.
package e2b
