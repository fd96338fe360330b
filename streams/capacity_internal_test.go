package streams

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/payloads"
	"github.com/sandjet/sandjet/streams/usage"
)

func TestWhoseAMessageIs(t *testing.T) {
	for subject, want := range map[string]struct {
		account schemas.AccountID
		class   usage.Class
	}{
		"sandjet.calls.local.acct_1.aWQ":                {"acct_1", usage.Calls},
		"sandjet.calls._parked.acct_1.aWQ":              {"acct_1", usage.Calls},
		"sandjet.intake.acct_1":                         {"acct_1", usage.Calls},
		"sandjet.cancels.acct_1.aWQ":                    {"acct_1", usage.Calls},
		"sandjet.events.00.acct_1.Yw":                   {"acct_1", usage.Events},
		"sandjet.jobs.acct_1.job_1":                     {"acct_1", usage.Events},
		"sandjet.turns.acct_1.Yw.f_1":                   {"acct_1", usage.Events},
		"sandjet.deliveries.webhook.acct_1.dl_1":        {"acct_1", usage.Events},
		"sandjet.timers.calls.local.acct_1.aWQ":         {"acct_1", usage.Calls},
		"sandjet.timers.deliveries.webhook.acct_1.dl_1": {"acct_1", usage.Events},
		"sandjet.timers.wakes.acct_1.Yw":                {"acct_1", usage.Events},
		"sandjet.timers.calls.acct_1":                   {"", usage.Calls},
		"sandjet.dead.CALLS.acct_1.7":                   {"acct_1", usage.Events},
		"sandjet.dead.CALLS._.7":                        {"", usage.Events},
		"sandjet.durable.acct_1.ds_1._":                 {"acct_1", usage.Durable},
		"sandjet.durable.acct_1":                        {"", usage.Durable},
		"$KV.leases.w1":                                 {"", usage.Events},
		"$KV.jobs.acct_1.job_1":                         {"acct_1", usage.Events},
		"$KV.open_jobs.acct_1.job_1":                    {"", usage.Events},
		"$KV.chats.acct_1":                              {"", usage.Events},
		"$KV.groups.acct_1.Zw":                          {"acct_1", usage.Events},
		"$KV.approvals.acct_1.appr_1":                   {"acct_1", usage.Events},
		"$KV.remembered.acct_1.mem_1":                   {"acct_1", usage.Events},
		"$KV.durable.acct_1.cA":                         {"acct_1", usage.Durable},
		"$KV.records.sandbox.acct_1.sb_1":               {"", usage.Events},
		"$KV.usage.acct_1":                              {"", usage.Events},
	} {
		if a, class := usageOf(subject); a != want.account || class != want.class {
			t.Errorf("%s: %q %d", subject, a, class)
		}
	}
}

// TestRoomOfTiers: limits by the number of copies count what is kept, and use counts the copies.
func TestRoomOfTiers(t *testing.T) {
	var info jetstream.AccountInfo
	info.Store, info.Limits.MaxStore = 10, -1
	if got := viewOf(&info, 3); got != (usage.View{Limit: 0, Used: 10}) {
		t.Errorf("without a limit: %+v", got)
	}
	info.Limits.MaxStore = 100
	if got := viewOf(&info, 3); got != (usage.View{Limit: 100, Used: 10}) {
		t.Errorf("with one: %+v", got)
	}
	var tier jetstream.Tier
	tier.Store, tier.Limits.MaxStore = 30, 100
	info.Tiers = map[string]jetstream.Tier{"R3": tier}
	if got := viewOf(&info, 3); got != (usage.View{Limit: 300, Used: 30}) {
		t.Errorf("with tiers: %+v", got)
	}
}

func FuzzPayloadOf(f *testing.F) {
	f.Add([]byte(`{"name":"acct_1.p_1","nuid":"x","size":10}`))
	f.Add([]byte(`{"name":"p_1","size":10}`))
	f.Add([]byte(`{"name":".p_1","size":10}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, n := payloadOf(data); n < 0 || n > payloads.Max || a == "" && n != 0 {
			t.Errorf("%q %d", a, n)
		}
	})
}
