package sandboxes

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestJudgeInstance(t *testing.T) {
	t.Parallel()
	const idle = 15 * time.Minute
	young := facts{state: schemas.InstanceReady, idle: idle, over: -time.Hour}
	for name, c := range map[string]struct {
		change func(*facts)
		want   verdict
	}{
		"just used":                        {func(*facts) {}, stays},
		"almost idle":                      {func(f *facts) { f.unused = idle - 1 }, stays},
		"idle":                             {func(f *facts) { f.unused = idle }, endIdle},
		"idle, and a call is in it":        {func(f *facts) { f.unused, f.calls = idle, true }, stays},
		"idle, and a job is in it":         {func(f *facts) { f.unused, f.jobs = idle, true }, stays},
		"idle, as far as others have told": {func(f *facts) { f.unused, f.shared = idle, time.Minute }, stays},
		"idle, and others would have told": {func(f *facts) { f.unused, f.shared = idle+time.Minute, time.Minute }, endIdle},
		"deleted":                          {func(f *facts) { f.gone = true }, endDeleted},
		"idle, and its record is lost":     {func(f *facts) { f.unused, f.lost = idle, true }, stays},
		"at its deadline, record lost":     {func(f *facts) { f.over, f.lost = 0, true }, endOld},
		"idle, record lost, can be paused": {func(f *facts) { f.unused, f.lost, f.pauses = idle, true, true }, toPause},
		"deleted, and a call is in it":     {func(f *facts) { f.gone, f.calls = true, true }, stays},
		"deleted, and a job is in it":      {func(f *facts) { f.gone, f.jobs = true, true }, endDeleted},
		"deleted, and used elsewhere":      {func(f *facts) { f.gone, f.shared = true, time.Minute }, stays},
		"at its deadline":                  {func(f *facts) { f.over = 0 }, endOld},
		"at its deadline, with a call":     {func(f *facts) { f.over, f.calls = 0, true }, stays},
		"at its deadline, with a job":      {func(f *facts) { f.over, f.jobs = 0, true }, stays},
		"at its deadline, used elsewhere":  {func(f *facts) { f.over, f.shared = 0, time.Minute }, stays},
		"beyond its grace":                 {func(f *facts) { f.over, f.calls, f.jobs = grace+1, true, true }, endOld},
		"an end that was begun here":       {func(f *facts) { f.state = schemas.InstanceEnding }, endIdle},
		"an end that was begun just now":   {func(f *facts) { f.state, f.shared = schemas.InstanceEnding, time.Minute }, stays},
		"an end that somebody died in": {func(f *facts) {
			f.state, f.shared, f.unused = schemas.InstanceEnding, time.Minute, time.Minute
		}, endIdle},
		"idle, and can be paused":         {func(f *facts) { f.unused, f.pauses = idle, true }, toPause},
		"idle and paused":                 {func(f *facts) { f.unused, f.pauses, f.state = idle, true, schemas.InstancePaused }, stays},
		"paused, at its deadline":         {func(f *facts) { f.over, f.state = 0, schemas.InstancePaused }, endOld},
		"paused, and deleted":             {func(f *facts) { f.gone, f.state = true, schemas.InstancePaused }, endDeleted},
		"a pause that was begun just now": {func(f *facts) { f.state, f.shared = schemas.InstancePausing, time.Minute }, stays},
		"a pause that somebody died in": {func(f *facts) {
			f.state, f.shared, f.unused = schemas.InstancePausing, time.Minute, time.Minute
		}, toPause},
		"a pause is wanted":                     {func(f *facts) { f.wanted, f.pauses = schemas.WantPaused, true }, toPause},
		"a pause is wanted, with a call":        {func(f *facts) { f.wanted, f.pauses, f.calls = schemas.WantPaused, true, true }, stays},
		"a pause is wanted, with a job":         {func(f *facts) { f.wanted, f.pauses, f.jobs = schemas.WantPaused, true, true }, stays},
		"a pause is wanted, used elsewhere":     {func(f *facts) { f.wanted, f.pauses, f.shared = schemas.WantPaused, true, time.Minute }, stays},
		"a pause is wanted, and there is no":    {func(f *facts) { f.wanted = schemas.WantPaused }, dropWish},
		"it is wanted awake":                    {func(f *facts) { f.wanted, f.state = schemas.WantRunning, schemas.InstancePaused }, toWake},
		"it is wanted awake, and is":            {func(f *facts) { f.wanted = schemas.WantRunning }, dropWish},
		"its removal is wanted":                 {func(f *facts) { f.wanted = schemas.WantRemoved }, endWanted},
		"its removal is wanted, with a call":    {func(f *facts) { f.wanted, f.calls = schemas.WantRemoved, true }, stays},
		"its removal is wanted, with a job":     {func(f *facts) { f.wanted, f.jobs = schemas.WantRemoved, true }, endWanted},
		"its removal is wanted while paused":    {func(f *facts) { f.wanted, f.state = schemas.WantRemoved, schemas.InstancePaused }, endWanted},
		"its removal is wanted, used elsewhere": {func(f *facts) { f.wanted, f.shared = schemas.WantRemoved, time.Minute }, stays},
		"its removal is wanted, all cancelled": {func(f *facts) {
			f.wanted, f.forced, f.shared = schemas.WantRemoved, true, time.Minute
		}, endWanted},
		"its removal is wanted, all cancelled, with a call": {func(f *facts) {
			f.wanted, f.forced, f.calls, f.shared = schemas.WantRemoved, true, true, time.Minute
		}, stays},
		"an end that was begun, with a job": {func(f *facts) { f.state, f.jobs = schemas.InstanceEnding, true }, stays},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := young
			c.change(&f)
			if got := judge(f); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
