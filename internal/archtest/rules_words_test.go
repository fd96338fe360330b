package archtest

import "regexp"

// replacedWords are not used any more in log messages and in help. The list grows with each rename.
var replacedWords = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(tell|tells|told|telling)\b`), "say what is done: published, reported, acknowledged, known"},
	{regexp.MustCompile(`(?i)\b(comes?|came) home\b`), "say that it finishes, or is reported"},
	{regexp.MustCompile(`(?i)\b(sweeper|closer|mover)\b`),
		"use the name of the type: JobRescuer, CallExpirer, StreamCleaner, DeadLetterForwarder, ApprovalExpirer"},
	{regexp.MustCompile(`(?i)\bpass(es|ed|ing)? over\b`), "use skip"},
	{regexp.MustCompile(`(?i)\banew\b`), "use again, or a new one"},
	{regexp.MustCompile(`(?i)\b(looks?|looked|looking) after\b|\bput in order\b`), "say what is done: checked, polled, handled, reconciled"},
	{regexp.MustCompile(`(?i)\b(stood|stands?|standing) still\b`), "use stalled, or paused"},
	{regexp.MustCompile(`(?i)\bnobody\b|\bwhoever\b`), "name who: no worker, the reader, the caller"},
	{regexp.MustCompile(`(?i)\bkeeper\b`), "use job manager"},
	{regexp.MustCompile(`(?i)\b(wheel|rider)\b`), "use keep-alive ring, and entry"},
	{regexp.MustCompile(`(?i)\bfront ?door\b`), "use NATS API"},
	{regexp.MustCompile(`(?i)\b(roof|floors?|siblings?)\b`), "use layers and packages"},
	{regexp.MustCompile(`(?i)\b(is|are) away\b|\bgiv(e|es|en|ing) up\b`), "use unreachable, failed, dead-lettered"},
	{regexp.MustCompile(`(?i)\b(puts?|putting) back\b`), "use returned to the queue, requeued"},
	{regexp.MustCompile(`(?i)\b(kept|ke+ps?) (box|boxes|sandbox|sandboxes|containers?)\b`), "use persistent sandbox, or instance"},
	{regexp.MustCompile(`(?i)\bseal(s|ed|ing)?\b`), "use encrypt"},
	{regexp.MustCompile(`(?i)\b(some|any)body\b`), "name who: a person, the caller, anyone"},
	{regexp.MustCompile(`(?i)\bmade up\b|\bmade-up\b`), "use simulated"},
	{regexp.MustCompile(`(?i)\bleapt\b|\ball the same\b|\bwhat became of\b`), "use jumped, still, the result of"},
}

// wordsOfDocs are not used in documents, which are read by more people than logs, in longer sentences.
var wordsOfDocs = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\bwhoever\b|\bnobody\b`), "name who: no worker, anyone who, the process that"},
	{regexp.MustCompile(`(?i)\banew\b`), "use again, recreated"},
	{regexp.MustCompile(`(?i)\b(stands?|stood|standing)\s+still\b`), "use stalled, paused, frozen"},
	{regexp.MustCompile(`(?i)\b(goes|go|going|went)\s+on\b`), "use continues, keeps"},
	{regexp.MustCompile(`(?i)\bkept\s+(box|boxes|sandbox|sandboxes|containers?|pods?)\b`), "use persistent sandbox, persistent instance"},
	{regexp.MustCompile(`(?i)\b(is|are)\s+away\b|\bgiv(e|es|en|ing)\s+up\b`), "use unreachable, failed for good, abandoned"},
	{regexp.MustCompile(`(?i)\bputs?\s+back\b|\bin\s+hand\b`), "use requeued, in progress"},
	{regexp.MustCompile(`(?i)\b(looks?|looked|looking)\s+after\b`), "use manages, checks"},
	{regexp.MustCompile(`(?i)\b(comes?|came)\s+home\b|\ball\s+the\s+same\b`), "use finishes, is reported; still"},
}

// replacedNames are not declared any more: types, functions, methods, fields, constants and variables of a package.
var replacedNames = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`^(Broken|DeniedBy)$`), "use StatusInterrupted, StatusDenied"},
	{regexp.MustCompile(`^Via($|[A-Z])|^(Tied|Own)$`), "use ReportedBy, EndsWithWorker, DedicatedSandbox"},
	{regexp.MustCompile(`[rR]emembered`), "use ApprovalGrant for an answer that counts for later calls, known for what a process remembers"},
	{regexp.MustCompile(`^[eE]xpos(ure|ed)$`), "use ToolVisibility"},
	{regexp.MustCompile(`^Pair$`), "use BucketEntry"},
	{regexp.MustCompile(`(?i)^(beats?|bury|buried|attend|burial)$`), "use progress acks, dead-letter, consumeOne"},
	{regexp.MustCompile(`^(scene|shelf|vault|standing)($|[A-Z])|(Scene|Shelf|Vault|Standing)`), "use placement, collection, sealed bucket, existing"},
	{regexp.MustCompile(`^(.*Sweeper|Closer|Mover)$`), "use JobRescuer, CallExpirer, ApprovalExpirer, StreamCleaner, DeadLetterForwarder"},
	{regexp.MustCompile(`^(shift|keeper|riders?|seats?|FrontDoor|Door)$`), "use workerRun, jobManager, keepaliveRing and entry, Service, Admitter"},
}
