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
	maxChatUser   = 256       // bytes of the id of a message's writer
)

// Settled returns the record of a job that ended with c. Texts and logs are cut so that the record fits its bucket: no report may prevent
// a job from settling. It is pure.
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

// cutCommand returns the part of a command that the record of a job contains.
func cutCommand(command string) string {
	return schemas.CutText(command, schemas.MaxJobCommand, schemas.MaxJobCommandJSON)
}

// recordSize returns the size of a job's record in its bucket, in bytes. For a record that cannot be encoded, which the write rejects, it
// returns maxJobRecord.
func recordSize(j schemas.Job) int {
	size, err := streams.SizeOf(j)
	if err != nil {
		return maxJobRecord
	}
	return size
}

// cutFiles returns the files for the record of a message, with their reasons cut.
func cutFiles(files []schemas.ChatFile) []schemas.ChatFile {
	cut := make([]schemas.ChatFile, len(files))
	for i, f := range files {
		f.Reason = schemas.CutText(f.Reason, maxFileReason, maxFileReason)
		cut[i] = f
	}
	return cut
}
