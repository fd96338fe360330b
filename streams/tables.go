package streams

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/callstore"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/topology"
)

// Names of the streams; events have one per shard.
const (
	streamIntake  = "INTAKE"
	streamCalls   = "CALLS"
	streamCancels = "CANCELS"
	streamJobs    = "JOBS"
	streamTurns   = "TURNS"
	streamWakes   = "WAKES"
	streamDeliver = "DELIVERIES"
	streamDead    = "DEAD"
	streamAdv     = "ADV"
	streamDurable = "DURABLE"

	streamArtifacts = "ARTIFACTS"
	streamSkills    = "SKILLS"
)

const (
	day = 24 * time.Hour

	callsKept  = callstore.Kept
	eventsKept = 7 * day // of what has ended, see Retention
	jobsKept   = 7 * day
	deadKept   = 30 * day

	commitsPerSubject = 100_000       // of one transcript
	transcriptsKept   = eventsLongest // above the longest wait of a turn: a job's life

	eventsLongest = schemas.MaxJobLifetime + eventsKept + day // whatever runs

	intakeQuota       = 10_000    // requests of one account that wait at the same time
	eventsPerSubject  = 1_000_000 // events of one conversation, whatever runs
	maxConsumers      = 256       // of one stream: never one per client
	dedupe            = 10 * time.Minute
	advisoryMaxDelive = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
)

// topologyVersion grows with each change of the tables below that an older process would undo.
const topologyVersion = 6

// tables are what a log has.
func tables() topology.Tables {
	t := topology.Tables{Version: topologyVersion, Streams: streamRows, Records: string(Records), Objects: func(stream string) string {
		bucket, _ := payloadBucket(stream)
		return bucket
	}}
	rows := bucketRows()
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.Buckets = append(t.Buckets, rows[name].config)
	}
	return t
}

// streamRows is the topology: every stream but those of buckets and object stores.
func streamRows(shards int) []jetstream.StreamConfig {
	rows := []jetstream.StreamConfig{
		{
			Name: streamIntake, Description: "Requests as outside NATS clients publish them.",
			Subjects: []string{subjects.Waiting + "*"}, Retention: jetstream.WorkQueuePolicy, // nothing ages out: the router ends each, and says so
			Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: intakeQuota, Duplicates: 2 * time.Minute,
		},
		{
			// Limits retention: the stored call is also the record of its id. One message per subject, so that sending a call again replaces it. An
			// ended call is removed after a day, see ForgetCalls; one that has not ended must not age out.
			Name: streamCalls, Description: "Admitted calls. Each stays a day as the record of its id, and until it has its end.",
			Subjects: []string{subjects.Calls + "*.*.*", subjects.CallTimers + "*.*.*"}, MaxAge: eventsLongest, MaxMsgsPerSubject: 1,
			AllowAtomicPublish: true, AllowMsgSchedules: true, Duplicates: 2 * time.Minute,
		},
		{
			Name: streamCancels, Description: "Requests for the end of calls.",
			Subjects: []string{subjects.Cancels + "*.*"}, MaxAge: callsKept, MaxMsgsPerSubject: 1, Duplicates: 2 * time.Minute,
			RePublish: &jetstream.RePublish{Source: subjects.Cancels + "*.*", Destination: subjects.Cancelled + "{{wildcard(1)}}.{{wildcard(2)}}"},
		},
		{
			// As with calls: one message per subject, published on the condition that there is none.
			Name: streamJobs, Description: "How background jobs ended. The first word on each counts.",
			Subjects: []string{subjects.Jobs + "*.*"}, MaxAge: jobsKept, MaxMsgsPerSubject: 1, Duplicates: 2 * time.Minute,
		},
		{
			Name: streamTurns, Description: "Follow-ups for agents whose turn continues.",
			Subjects: []string{subjects.Turns + "*.*.*"}, MaxAge: jobsKept, MaxMsgsPerSubject: 1, Duplicates: 2 * time.Minute,
		},
		{
			// The last one of each conversation replaces all before it. A process that carries the turn on learns of it by the header.
			Name: streamWakes, Description: "Which conversations are to be looked at, as their turns may go on.",
			Subjects: []string{subjects.Wakes + "*.*", subjects.WakeTimers + "*.*"}, MaxAge: transcriptsKept, MaxMsgsPerSubject: 1,
			AllowMsgSchedules: true, Duplicates: 2 * time.Minute,
			RePublish: &jetstream.RePublish{Source: subjects.Wakes + "*.*", Destination: subjects.Woken + "{{wildcard(1)}}.{{wildcard(2)}}",
				HeadersOnly: true},
		},
		{
			// A retry is a scheduled message: the server writes it to the delivery's own subject when it is due.
			Name: streamDeliver, Description: "Deliveries on their way, and kept for a replay.",
			Subjects: []string{subjects.Deliveries + "*.*.*", subjects.DeliveryTimers + "*.*.*"}, MaxAge: jobsKept, MaxMsgsPerSubject: 1,
			AllowMsgSchedules: true, AllowMsgTTL: true, Duplicates: 2 * time.Minute,
		},
		{
			Name: streamDead, Description: "Messages that failed for good, with the reason.",
			Subjects: []string{subjects.Dead + "*.*.*"}, MaxAge: deadKept, MaxMsgsPerSubject: -1, Duplicates: dedupe,
		},
		{
			Name: streamAdv, Description: "Notices of the server about messages out of deliveries.",
			Subjects: advisorySubjects(), MaxAge: eventsKept, MaxMsgsPerSubject: -1, Duplicates: 2 * time.Minute,
		},
		{
			// Nothing ages out: a durable stream ends as a whole. Readers are woken by headers alone.
			Name: streamDurable, Description: "What clients keep in durable streams.",
			Subjects: []string{subjects.Durable + "*.*.*"}, MaxMsgsPerSubject: -1, Duplicates: 2 * time.Minute,
			RePublish: &jetstream.RePublish{Source: subjects.Durable + "*.*.*",
				Destination: subjects.DurableLive + "{{wildcard(1)}}.{{wildcard(2)}}", HeadersOnly: true},
		},
		{
			// One message per subject: bytes that are stored again take the place of the same bytes, and are young again.
			Name: streamArtifacts, Description: "Files that calls have left for people, and their bytes.",
			Subjects: []string{subjects.Artifacts + ">"}, MaxAge: eventsLongest + artifactsLonger, MaxMsgsPerSubject: 1, Duplicates: 2 * time.Minute,
		},
		{
			// Nothing ages out: what no record names is removed, see maintenance.SkillCleaner. Bytes that are stored again are young again.
			Name: streamSkills, Description: "Bundles of skills, by digest.",
			Subjects: []string{subjects.Skills + "*.*.*.*"}, MaxMsgsPerSubject: 1, Duplicates: 2 * time.Minute,
		},
	}
	for n := range shards {
		rows = append(rows, jetstream.StreamConfig{ // before the events, whose first shard is found from the end
			Name: subjects.TranscriptStream(n), Description: "What was said in the turns of the conversations of this shard.",
			Subjects: []string{subjects.TranscriptsOf(n) + "*.*"}, MaxAge: transcriptsKept, MaxMsgsPerSubject: commitsPerSubject,
			Duplicates: 2 * time.Minute,
		})
	}
	for n := range shards {
		source := subjects.EventsOf(n) + "*.*"
		rows = append(rows, jetstream.StreamConfig{
			Name: subjects.EventStream(n), Description: "Events of the conversations of this shard.",
			Subjects: []string{source}, MaxAge: eventsLongest, MaxMsgsPerSubject: eventsPerSubject, AllowAtomicPublish: true, Duplicates: dedupe,
			RePublish: &jetstream.RePublish{Source: source, Destination: subjects.Live + "{{wildcard(1)}}.{{wildcard(2)}}"},
		})
	}
	for i := range rows {
		r := &rows[i]
		r.AllowDirect, r.MaxConsumers, r.MaxBytes, r.MaxMsgs, r.MaxMsgSize = true, maxConsumers, -1, -1, -1
	}
	return rows
}

// consumedStreams are the streams whose consumers can run out of deliveries.
func consumedStreams() []string {
	return []string{streamIntake, streamCalls, streamJobs, streamTurns, streamWakes, streamDeliver, streamDead}
}

func advisorySubjects() []string {
	var s []string
	for _, name := range consumedStreams() {
		s = append(s, advisoryMaxDelive+name+".*")
	}
	return s
}

// BucketName names a row of the table of buckets.
type BucketName string

// The buckets.
const (
	Records BucketName = "records" // accounts, sandboxes, workspaces
	Leases  BucketName = "leases"  // signs of life: a value ends 3 s after it was written

	// JobRecords are the background jobs ([schemas.Job]) by [schemas.JobKey], GroupRecords the groups
	// ([schemas.Group]) by [GroupKey]. What is over is written with UpdateFor and ends after SettledKept.
	JobRecords   BucketName = "jobs"
	GroupRecords BucketName = "groups"

	// OpenJobMarks say which jobs have not settled, see [JobWatch].
	OpenJobMarks BucketName = "open_jobs"

	// ApprovalRecords are the questions to people ([schemas.Approval]) by [schemas.ApprovalKey]. What is
	// answered and done is written with UpdateFor and ends after SettledKept.
	ApprovalRecords BucketName = "approvals"

	// DurableRecords says what durable streams there are, by "<account>.<path as base64url>".
	DurableRecords BucketName = "durable"

	// ApprovalGrants are the answers that count for later calls too ([schemas.ApprovalGrant]) by
	// [schemas.ApprovalGrantKey]. They are written with UpdateFor and end with their time.
	ApprovalGrants BucketName = "remembered"

	// ServedProviders says which providers are served, by name; see [Served].
	ServedProviders BucketName = "served"

	// trimMarks say up to when events were removed, see [trimMark].
	trimMarks BucketName = "trimmed"

	// usageRecords is what each account keeps on the log, by account.
	usageRecords BucketName = "usage"

	// Chats are the places of chats with a message ([schemas.Chat]) by [schemas.ChatKey]; ReceivedMessages say in which conversation a message
	// was received, by [schemas.ReceivedKey]. Each ends by itself.
	Chats            BucketName = "chats"
	ReceivedMessages BucketName = "received"

	// TurnHolds say who carries on the turns of each conversation ([schemas.TurnHold]), by "<account>.<conversation as base64url>".
	TurnHolds BucketName = "turns"

	// Boxes are the instances of persistent sandboxes ([schemas.Instance]) by [schemas.InstanceKey].
	Boxes BucketName = "boxes"

	// SentParts are the ledgers of deliveries to chats, by "<account>.<delivery>".
	SentParts BucketName = "sent"
)

// SettledKept is how long the records of settled jobs, of groups and of answered approvals are kept.
const SettledKept = jobsKept

// MarksKept is how long the mark of a deleted value of [Records] stays, unless the deletion says otherwise. A watch that may have been
// disconnected for half of that reads everything again.
const MarksKept = 10 * time.Minute

// BoxesKept is how long a value of [Boxes] lives at most: above the longest life of a box.
const BoxesKept = 40 * day

// LeaseTTL is how long a value of [Leases] lives unless it is written again.
const LeaseTTL = 3 * time.Second

const (
	approvalGrantsKept = day            // as long as an answer is remembered at most
	chatsKept          = 30 * day       // after the last message: then the chat begins where it began
	receivedKept       = jobsKept + day // above the life of a turn
	sentKept           = jobsKept + day // since a ledger's last change: above the life of its delivery
	trimMarksKept      = eventsLongest + day
	usageKept          = eventsLongest + day
	turnHoldsKept      = transcriptsKept + day // after the last change: then nothing is left of the conversation's turns
)

type bucketRow struct {
	config jetstream.KeyValueConfig
	ttl    time.Duration // of each value; 0: it stays
	marks  time.Duration // how long the mark of a deletion stays; 0: until the key has a value again
}

func bucketRows() map[BucketName]bucketRow {
	return map[BucketName]bucketRow{
		Records: {marks: MarksKept, config: jetstream.KeyValueConfig{
			Bucket: string(Records), Description: "Accounts, sandboxes and workspaces.", History: 1, LimitMarkerTTL: 10 * time.Second,
			MaxValueSize: 512 << 10,
		}},
		Leases: {ttl: LeaseTTL, config: jetstream.KeyValueConfig{
			Bucket: string(Leases), Description: "Signs of life.", History: 1, LimitMarkerTTL: 10 * time.Second, MaxValueSize: 16 << 10,
		}},
		JobRecords: {config: jetstream.KeyValueConfig{
			Bucket: string(JobRecords), Description: "Background jobs; settled ones for seven days.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 128 << 10,
		}},
		OpenJobMarks: {config: jetstream.KeyValueConfig{
			Bucket: string(OpenJobMarks), Description: "Which background jobs have not settled.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 1 << 10,
		}},
		GroupRecords: {config: jetstream.KeyValueConfig{
			Bucket: string(GroupRecords), Description: "Groups of background calls.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 64 << 10,
		}},
		ApprovalRecords: {config: jetstream.KeyValueConfig{
			Bucket: string(ApprovalRecords), Description: "Questions to people about calls; answered ones for seven days.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 256 << 10,
		}},
		DurableRecords: {config: jetstream.KeyValueConfig{
			Bucket: string(DurableRecords), Description: "Durable streams: their settings and where their data is.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 512 << 10,
		}},
		ApprovalGrants: {ttl: approvalGrantsKept, config: jetstream.KeyValueConfig{
			Bucket: string(ApprovalGrants), Description: "Answers of people that count for later calls too.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 16 << 10,
		}},
		ServedProviders: {ttl: day, config: jetstream.KeyValueConfig{
			Bucket: string(ServedProviders), Description: "Which providers are served.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 1 << 10,
		}},
		trimMarks: {ttl: trimMarksKept, config: jetstream.KeyValueConfig{
			Bucket: string(trimMarks), Description: "Up to when events were removed from shards and conversations.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 1 << 10,
		}},
		usageRecords: {ttl: usageKept, config: jetstream.KeyValueConfig{
			Bucket: string(usageRecords), Description: "What each account keeps on the log.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 16 << 10,
		}},
		Chats: {ttl: chatsKept, config: jetstream.KeyValueConfig{
			Bucket: string(Chats), Description: "Where chats go on, and where answers go.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 128 << 10,
		}},
		ReceivedMessages: {ttl: receivedKept, config: jetstream.KeyValueConfig{
			Bucket: string(ReceivedMessages), Description: "In which conversation a message of a chat was received.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 768 << 10, // twenty files, of which a reference may be 24 KiB as JSON
		}},
		TurnHolds: {ttl: turnHoldsKept, config: jetstream.KeyValueConfig{
			Bucket: string(TurnHolds), Description: "Who carries on the turns of conversations.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 768 << 10,
		}},
		Boxes: {ttl: BoxesKept, config: jetstream.KeyValueConfig{
			Bucket: string(Boxes), Description: "Instances of persistent sandboxes.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 16 << 10,
		}},
		SentParts: {ttl: sentKept, config: jetstream.KeyValueConfig{
			Bucket: string(SentParts), Description: "Which parts of a delivery its chat has.", History: 1,
			LimitMarkerTTL: 10 * time.Second, MaxValueSize: 768 << 10,
		}},
	}
}

// formerPayloads is where those of events were too, before topology 3.
const formerPayloads = "payloads_8d"

// payloadBucket names the object store for large payloads of a stream. Nothing deletes them one by
// one: they age out a while after the messages that need them.
func payloadBucket(stream string) (name string, kept time.Duration) {
	switch stream {
	case streamIntake, streamCalls, streamCancels: // what comes into the first by way of a dead letter is handled soon
		return "payloads_2d", callsKept + day
	case streamDead:
		return "payloads_31d", deadKept + day
	case streamJobs, streamTurns, streamDeliver:
		return formerPayloads, jobsKept + day
	}
	return "payloads_39d", eventsLongest + day
}

// formerOwner returns the stream that has the bucket of a payload of a stream: payloads of events were in [formerPayloads] before.
func formerOwner(stream, bucket string) string {
	if bucket == formerPayloads && strings.HasPrefix(stream, subjects.EventStreams) {
		return streamJobs // it has that bucket still
	}
	return stream
}
