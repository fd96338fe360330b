package archtest

// joinedElsewhere are the functions that start a goroutine which does not signal its end beside its `go` statement, and what ends and
// awaits it.
var joinedElsewhere = map[string]string{
	"client Socket.once":                "a token is asked for under the connection's context, and is of no use behind it",
	"cmd/sandjet interruptible":         "it ends with the context that it returns, at the latest with the process",
	"internal/wsconn Coalescer.Wake":    "Again hands the end on: what runs ends when nothing is left, and its owner knows by the state",
	"providers/local/box Launch":        "listen closes Spawner.gone, for which Close waits",
	"providers/local/box Spawner.Make":  "listen and await close the box's channels, for which Gone and Ended let wait",
	"providers/local/box closeBox":      "it is process 1 of a box: its goroutines end with the box",
	"providers/local/box server.forker": "it is process 1 of a box: its goroutines end with the box",
	"providers/local/box server.handle": "it is process 1 of a box: its goroutines end with the box",
	"providers/local/box server.serve":  "it is process 1 of a box: its goroutines end with the box",
	"providers/local/box spawn":         "it is the spawner, a process of its own, and ends with that",
	"providers/local Provider.Run":      "Close ends the spawner and with it every box, whose end is what this waits for",
	"providers/local boxes.take":        "as in Provider.Run",
	"providers/local boxes.warm":        "as in Provider.Run",
	"providers/local keptBoxes.entry":   "as in Provider.Run",
	"providers/local job.begin":         "watch closes the job's channel, for which closeJobs waits",
	"streams Bus.Answer":                "each holds a place, and Answer takes all places back before it returns",
	"streams connections.dial":          "it awaits a dial that came too late, which ends by the client library's own timeout",
	"streams Durable.Watch":             "stop closes the channel that ends it; it then calls nobody any more",
	"streams/embedded Server.start":     "it awaits a start that came too late, and shuts that server down",
	"streams group.store":               "each writer ends when nobody waits, and those who wait are told on their channels",
}
