package schemas

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A record of the version before is read as if it had the names of today, which are the only ones written.
func TestNamesOfTheVersionBeforeAreRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	completion := Completion{
		Job: "job_1", Account: "acct_1", State: JobFailed, ReportedBy: ReportedByProvider, ExitCode: new(3),
		Logs: "a", LogBytes: 1, Finished: now,
	}
	for name, v := range map[string]any{
		"job": &Job{
			ID: "job_1", Account: "acct_1", Conversation: "conv_1", State: JobFailed, EndsWithWorker: true, DedicatedSandbox: true,
			Completion: &completion, Created: now, Deadline: now,
		},
		"completion": &completion,
		"result":     &JobResult{Job: "job_1", Call: "call_1", State: JobFailed, ReportedBy: ReportedByCallback, Finished: now},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			written, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			before := strings.NewReplacer(`"ends_with_worker"`, `"tied"`, `"dedicated_sandbox"`, `"own"`, `"reported_by"`, `"via"`).Replace(string(written))
			if before == string(written) {
				t.Fatalf("%s has none of the names", written)
			}
			for _, text := range []string{string(written), before} {
				got := reflect.New(reflect.TypeOf(v).Elem()).Interface()
				if err := json.Unmarshal([]byte(text), got); err != nil || !reflect.DeepEqual(got, v) {
					t.Errorf("%s is read as %+v, %v", text, got, err)
				}
				again, err := json.Marshal(got)
				if err != nil || string(again) != string(written) {
					t.Errorf("written again: %s, %v", again, err)
				}
			}
		})
	}
	for _, bad := range []string{`{"tied":1}`, `[]`, `{"via":{}}`} {
		for _, v := range []any{&Job{}, &Completion{}, &JobResult{}} {
			isJob := reflect.TypeOf(v) == reflect.TypeFor[*Job]()
			wrong := bad == "[]" || strings.Contains(bad, "tied") == isJob
			if err := json.Unmarshal([]byte(bad), v); err == nil && wrong {
				t.Errorf("%T takes %s", v, bad)
			}
		}
	}
}
