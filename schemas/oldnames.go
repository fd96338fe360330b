package schemas

import "encoding/json"

// Logs that an older version wrote keep a job's facts under the names of that version for as long as the log keeps
// them: seven days. These decoders read both, the new name first; nothing writes the old ones. They go with the next
// version.

// UnmarshalJSON reads a job, also as the version before wrote it.
func (j *Job) UnmarshalJSON(b []byte) error {
	type plain Job
	both := struct {
		*plain

		Tied bool `json:"tied"`
		Own  bool `json:"own"`
	}{plain: (*plain)(j)}
	if err := json.Unmarshal(b, &both); err != nil {
		return err
	}
	j.EndsWithWorker = j.EndsWithWorker || both.Tied
	j.DedicatedSandbox = j.DedicatedSandbox || both.Own
	return nil
}

// UnmarshalJSON reads a completion, also as the version before wrote it.
func (c *Completion) UnmarshalJSON(b []byte) error {
	type plain Completion
	both := struct {
		*plain

		Via ReportedBy `json:"via"`
	}{plain: (*plain)(c)}
	if err := json.Unmarshal(b, &both); err != nil {
		return err
	}
	if c.ReportedBy == "" {
		c.ReportedBy = both.Via
	}
	return nil
}

// UnmarshalJSON reads a result, also as the version before wrote it.
func (r *JobResult) UnmarshalJSON(b []byte) error {
	type plain JobResult
	both := struct {
		*plain

		Via ReportedBy `json:"via"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(b, &both); err != nil {
		return err
	}
	if r.ReportedBy == "" {
		r.ReportedBy = both.Via
	}
	return nil
}
