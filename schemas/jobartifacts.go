package schemas

import "encoding/json"

const (
	// MaxJobArtifacts is the most bytes, as JSON, of the artifacts that the record of a job lists, with those that are skipped.
	MaxJobArtifacts = 24 << 10
	// MaxJobPatterns is the most bytes, as JSON, of the patterns that name artifacts of a background call.
	MaxJobPatterns = 16 << 10
)

// JobOutputs are the places in which a job leaves artifacts: the folder [OutputsFolder], and what patterns name, see [ArtifactPattern].
type JobOutputs struct {
	Patterns []string `json:"patterns,omitzero"`
}

// Validate reports whether the record of a job has room for the patterns. Code: invalid.
func (o JobOutputs) Validate() error {
	text, err := EncodeJSON(o.Patterns)
	if err != nil || len(text) > MaxJobPatterns {
		return Invalidf("artifacts", "the patterns of a background call and of its sandbox are %d bytes of JSON: at most %d", len(text), MaxJobPatterns)
	}
	return nil
}

// JobArtifacts is what a job has left for people, as it was found after the job's end and before job.finished.
type JobArtifacts struct {
	// Artifacts are files that are kept. Lists of jobs leave them out.
	Artifacts []Artifact `json:"artifacts,omitzero"`
	// MoreArtifacts counts those for which this list has no room. The list of the conversation has them all.
	MoreArtifacts int `json:"more_artifacts,omitzero"`
	// SkippedArtifacts are files that the job has made or changed and that are not kept, with the reasons.
	SkippedArtifacts []SkippedArtifact `json:"skipped_artifacts,omitzero"`
}

// Within is a, cut to a number of bytes as JSON, but for some 200 bytes that say what is left out. It is pure.
func (a JobArtifacts) Within(size int) JobArtifacts {
	cut := JobArtifacts{MoreArtifacts: a.MoreArtifacts}
	for i, f := range a.Artifacts {
		if size -= sizeAsJSON(f); size < 0 {
			cut.MoreArtifacts += len(a.Artifacts) - i
			break
		}
		cut.Artifacts = append(cut.Artifacts, f)
	}
	for i, f := range a.SkippedArtifacts {
		if f.Count > 0 { // the last, which counts others
			cut.SkippedArtifacts = append(cut.SkippedArtifacts, f)
			break
		}
		if size -= sizeAsJSON(f); size < 0 {
			cut.SkippedArtifacts = append(cut.SkippedArtifacts, SkippedArtifact{Reason: f.Reason, Count: countSkipped(a.SkippedArtifacts[i:])})
			break
		}
		cut.SkippedArtifacts = append(cut.SkippedArtifacts, f)
	}
	return cut
}

// ListSize is how many bytes a is as JSON.
func (a JobArtifacts) ListSize() int { return sizeAsJSON(a) }

func sizeAsJSON(v any) int {
	text, err := EncodeJSON(v)
	if err != nil { // texts and numbers always encode
		return 0
	}
	return len(text)
}

func countSkipped(list []SkippedArtifact) (n int) {
	for _, f := range list {
		n += max(f.Count, 1)
	}
	return n
}

// JobArtifactsRequest asks a worker for the artifacts of a job that has ended and whose record is not final yet.
type JobArtifactsRequest struct {
	Account AccountID `json:"account"`
	Job     JobID     `json:"job"`
}

const (
	maxJobArtifactsRequest = 1 << 10 // bytes: above what two ids take
	maxSkipReason          = 64      // bytes of a reason, of which a newer worker may know others
)

// DecodeJobArtifactsRequest reads a request. Code: invalid.
func DecodeJobArtifactsRequest(b []byte) (JobArtifactsRequest, error) {
	var r JobArtifactsRequest
	if err := DecodeStrict(b, maxJobArtifactsRequest, &r); err != nil {
		return JobArtifactsRequest{}, err
	}
	if err := r.Account.Validate(); err != nil {
		return JobArtifactsRequest{}, under("account", err)
	}
	if err := r.Job.Validate(); err != nil {
		return JobArtifactsRequest{}, under("job", err)
	}
	return r, nil
}

// DecodeJobArtifacts reads the answer to a request. Unknown fields are skipped: the worker may be newer. Code: invalid.
func DecodeJobArtifacts(b []byte) (JobArtifacts, error) {
	var a JobArtifacts
	if err := json.Unmarshal(b, &a); err != nil {
		return JobArtifacts{}, jsonError(err)
	}
	for _, f := range a.SkippedArtifacts {
		if len(f.Reason) > maxSkipReason {
			return JobArtifacts{}, Invalidf("skipped_artifacts", "a reason has %d bytes: at most %d", len(f.Reason), maxSkipReason)
		}
	}
	return a, nil
}
