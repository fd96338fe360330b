package sandboxes

import (
	"testing"
	"time"
)

func TestJudgeInstance(t *testing.T) {
	t.Parallel()
	const idle = 15 * time.Minute
	young := facts{idle: idle, over: -time.Hour}
	for name, c := range map[string]struct {
		change func(*facts)
		want   verdict
	}{
		"just used":                         {func(*facts) {}, stays},
		"almost idle":                       {func(f *facts) { f.unused = idle - 1 }, stays},
		"idle":                              {func(f *facts) { f.unused = idle }, endIdle},
		"idle, and a call is in it":         {func(f *facts) { f.unused, f.calls = idle, true }, stays},
		"idle, and a job is in it":          {func(f *facts) { f.unused, f.jobs = idle, true }, stays},
		"idle, as far as others have told":  {func(f *facts) { f.unused, f.shared = idle, time.Minute }, stays},
		"idle, and others would have told":  {func(f *facts) { f.unused, f.shared = idle+time.Minute, time.Minute }, endIdle},
		"deleted":                           {func(f *facts) { f.gone = true }, endDeleted},
		"deleted, and a call is in it":      {func(f *facts) { f.gone, f.calls = true, true }, stays},
		"deleted, and a job is in it":       {func(f *facts) { f.gone, f.jobs = true, true }, endDeleted},
		"deleted, and used elsewhere":       {func(f *facts) { f.gone, f.shared = true, time.Minute }, stays},
		"at its deadline":                   {func(f *facts) { f.over = 0 }, endOld},
		"at its deadline, with a call":      {func(f *facts) { f.over, f.calls = 0, true }, stays},
		"at its deadline, with a job":       {func(f *facts) { f.over, f.jobs = 0, true }, stays},
		"at its deadline, used elsewhere":   {func(f *facts) { f.over, f.shared = 0, time.Minute }, stays},
		"beyond its grace":                  {func(f *facts) { f.over, f.calls, f.jobs = grace+1, true, true }, endOld},
		"an end that was begun here":        {func(f *facts) { f.ending = true }, endIdle},
		"an end that was begun just now":    {func(f *facts) { f.ending, f.shared = true, time.Minute }, stays},
		"an end that somebody died in":      {func(f *facts) { f.ending, f.shared, f.unused = true, time.Minute, time.Minute }, endIdle},
		"an end that was begun, with a job": {func(f *facts) { f.ending, f.jobs = true, true }, stays},
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
