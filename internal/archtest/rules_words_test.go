package archtest

import "regexp"

// replacedWords are not used any more in log messages and in help. The list grows with each rename.
var replacedWords = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(tell|tells|told|telling)\b`), "say what is done: published, reported, acknowledged, known"},
	{regexp.MustCompile(`(?i)\b(comes?|came) home\b`), "say that it finishes, or is reported"},
	{regexp.MustCompile(`(?i)\b(sweeper|closer|mover)\b`), "use the name of the type: JobRescuer, CallExpirer, StreamCleaner, DeadLetterForwarder, ApprovalExpirer"},
	{regexp.MustCompile(`(?i)\bkeeper\b`), "use job manager"},
	{regexp.MustCompile(`(?i)\b(wheel|rider)\b`), "use keep-alive ring, and entry"},
	{regexp.MustCompile(`(?i)\bfront ?door\b`), "use NATS API"},
	{regexp.MustCompile(`(?i)\b(roof|floors?|siblings?)\b`), "use layers and packages"},
}
