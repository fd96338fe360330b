package schemas

import "time"

// Limits of what is accepted. Each is checked at the edge; docs/LIMITS.md lists them.
const (
	MaxRequest        = 8 << 20   // bytes of a request's JSON, at every way in
	MaxMembers        = 10_000    // members and elements of one JSON document, at every way in
	MaxManyMembers    = 100_000   // those of a manifest, and the values of one append to a durable stream
	MaxInput          = 6 << 20   // bytes of a tool's input
	MaxCommand        = 1 << 20   // bytes of a bash command
	MaxContent        = 5 << 20   // bytes of content that one write may carry
	MaxEdit           = 10 << 20  // bytes of a file that can be edited
	MaxEdited         = 16 << 20  // bytes of what an edit makes of it
	MaxPath           = 4096      // bytes of a path
	MaxPattern        = 8 << 10   // bytes of a glob or grep pattern
	MaxPatternSteps   = 10_000    // instructions of the program that a pattern is compiled to
	MaxBraces         = 16 << 10  // bytes of what the braces of a pattern expand to
	MaxWalkNames      = 64 << 20  // bytes of names that one glob or grep holds
	MaxCallID         = 128       // bytes
	MaxConversationID = 256       // bytes
	MaxName           = 128       // bytes of a workspace's or sandbox's name
	MaxOrigin         = 16 << 10  // bytes of an origin
	MaxChannel        = 64        // bytes of a channel's name
	MaxToolName       = 64        // bytes of the name of a tool, one that does not exist included
	MaxTraceParent    = 128       // bytes of a W3C trace parent
	MaxEvent          = 768 << 10 // bytes of one event's JSON on the log; a chunk of output is far smaller
	MaxChunk          = 64 << 10  // bytes of output in one call.output event
	MaxEnvVars        = 256       // variables of a sandbox
	MaxEnvBytes       = 256 << 10 // bytes of all its names and values

	MaxConfig      = 512 << 10 // bytes of a record's JSON as it comes in
	MaxDescription = 1024      // bytes of what a record says for people
	MaxSandboxes   = 1000      // sandboxes of an account
	MaxWorkspaces  = 1000      // workspaces of an account
	MaxAgents      = 1000      // agents of an account
	MaxVariables   = 1000      // variables of an account
	MaxVariable    = 64 << 10  // bytes of one's value

	MaxAgentWorkspaces = 32 // workspaces of an agent

	MaxNetworkRules    = 256     // entries in each list of a sandbox's network
	MaxCredentials     = 16      // variables of a sandbox that are bound to hosts
	MaxCredentialHosts = 16      // hosts that one is bound to
	MinCredential      = 8       // bytes of its value: a shorter one would be found in answers where it is not
	MaxCredential      = 8 << 10 // likewise at most

	MaxHooks       = 32                  // scripts in each list of a sandbox's hooks
	MaxHook        = 16 << 10            // bytes of one of them
	MaxMemoryLimit = 1 << 20             // MiB of a sandbox
	MaxIdleTimeout = 7 * 24 * time.Hour  // of a persistent instance
	MaxLifetime    = 30 * 24 * time.Hour // of a persistent instance

	DefaultIdleTimeout = 15 * time.Minute   // of a persistent instance whose sandbox does not say
	DefaultMaxLifetime = 7 * 24 * time.Hour // likewise

	MaxJobCommand          = 4 << 10   // bytes of a command that a job's record keeps
	MaxJobLogs             = 32 << 10  // bytes of output that a job's completion carries
	MaxJobReason           = 4 << 10   // bytes of the reason that a job's completion gives
	MaxJobCommandJSON      = 8 << 10   // bytes of the command in a job's record as JSON, which writes one byte as up to six
	MaxJobReasonJSON       = 8 << 10   // likewise of the reason
	MaxJobLogsJSON         = 48 << 10  // likewise of the output
	MaxJobLogPage          = 256 << 10 // bytes of output that one read of a job's log gives
	MaxJobStdin            = 64 << 10  // bytes that one write to a job's standard input may carry
	MaxJobCallback         = 512 << 10 // bytes of a callback's body
	MaxJobOutput           = 64 << 20  // bytes of output that are kept of a job: its beginning is dropped beyond
	MaxGroup               = 100       // calls of a group
	MaxEndpoints           = 100       // webhook endpoints of an account
	MaxEndpointURL         = 2048      // bytes
	MaxEndpointConcurrency = 64        // requests to an endpoint at the same time
	MaxWebhookBody         = 256 << 10 // bytes of a delivery's body; results above are left out and named

	MaxChatChannels   = 100      // chat channels of an account
	MaxChannelPlaces  = 500      // places of a chat channel, and likewise users
	MaxChannelFields  = 8        // secrets of a chat channel, and likewise settings
	MaxChannelSetting = 1024     // bytes of a setting
	MaxChannelSecret  = 16 << 10 // bytes of a secret
	MaxChatText       = 64 << 10 // bytes of a message that a person wrote in a chat
	MaxChatFiles      = 20       // files of a message that are named
	MaxChatFileSize   = 20 << 20 // bytes of a file of a message that is stored
	MaxChatFilesSize  = 50 << 20 // the same, of all files of a message
	MaxChatFileName   = 120      // bytes of its name
	MaxChatFileType   = 100      // the same, of its type
	MaxChatFileRef    = 4096     // the same, of what its service finds it by

	MaxApprovalInput  = 64 << 10 // bytes of a call's input that its events, and the record of its approval, carry
	MaxApprovalReason = 1024     // bytes of the reason that is given with an answer

	DefaultJobs        = 10             // running jobs in one reserved sandbox
	MaxJobs            = 1000           // the most that a sandbox may ask for
	MaxOpenJobs        = 10_000         // background jobs of an account that have not settled
	DefaultJobLifetime = 24 * time.Hour // of a job
	MaxJobLifetime     = 30 * 24 * time.Hour

	DefaultOutputLimit = 64 << 10  // bytes of stdout, and of stderr, kept in a result
	MaxOutputLimit     = 256 << 10 // the most a sandbox may ask for

	DefaultTimeout        = 30 * time.Second // of one run
	MaxTimeout            = 10 * time.Minute // of one run
	DefaultDeadline       = time.Hour        // from acceptance to the end, waiting included
	MaxDeadline           = 23 * time.Hour   // below the time that calls are kept on the log
	ApprovalGrantLifetime = 24 * time.Hour   // that an answer counts for later calls
	DefaultApproval       = 23 * time.Hour   // that a person has to answer, for the same reason
)
