package lifecycle

import (
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Every record must fit its bucket, whatever bytes it is made of: one byte of a text is up to six in JSON, and a line separator in JSON
// that came in is twice as large.
const (
	maxJobRecord  = 120 << 10 // bytes of a job's record: its bucket takes 128 KiB, headers included
	maxFileReason = 512       // bytes of why a file of a message was not stored
	maxChatUser   = 256       // bytes of who wrote in a chat
)

// Settled is the record of a job that ended with c. What the completion and the record say is cut where the record would not fit its
// bucket: no report may keep a job from settling. It is pure.
func Settled(j schemas.Job, c schemas.Completion) schemas.Job {
	c.Reason = schemas.CutText(c.Reason, schemas.MaxJobReason, schemas.MaxJobReasonJSON)
	j.Command = cutCommand(j.Command) // an older version may have written it
	j.Outputs = nil
	c.JobArtifacts = c.Within(schemas.MaxJobArtifacts)
	printed, truncated := c.Logs, c.LogTruncated
	c.Logs = ""
	j.State, j.Completion = c.State, &c
	room := maxJobRecord - recordSize(j)
	c.Logs = schemas.TailJSON(schemas.TailText(printed, schemas.MaxJobLogs), max(min(room, schemas.MaxJobLogsJSON), 0))
	c.LogTruncated = truncated || len(c.Logs) < len(printed)
	return j
}

// cutCommand is what the record of a job says of its command.
func cutCommand(command string) string {
	return schemas.CutText(command, schemas.MaxJobCommand, schemas.MaxJobCommandJSON)
}

// recordSize is how many bytes a record of a job has in its bucket; one that is no JSON is refused when it is written.
func recordSize(j schemas.Job) int {
	size, err := streams.SizeOf(j)
	if err != nil {
		return maxJobRecord
	}
	return size
}

// cutFiles is what the note of a message says of its files.
func cutFiles(files []schemas.ChatFile) []schemas.ChatFile {
	cut := make([]schemas.ChatFile, len(files))
	for i, f := range files {
		f.Reason = schemas.CutText(f.Reason, maxFileReason, maxFileReason)
		cut[i] = f
	}
	return cut
}
