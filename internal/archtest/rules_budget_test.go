package archtest

import "regexp"

// plainWords are the words and phrases that TestPlainWords counts.
var plainWords = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(?:tells?|told|telling|untold)\b`), "name the act: publish, report, return, notify, log, send; know"},
	{regexp.MustCompile(`(?i)\b(?:whoever|nobody|somebody|anybody)\b`), "name who: no process, another worker, the caller, any reader"},
	{regexp.MustCompile(`(?i)\b(?:anew|all\s+the\s+same)\b`), "use again, a new one; still"},
	{regexp.MustCompile(`(?i)\b(?:(goes|go|going|went)\s+on)\b`), "use continues, keeps"},
	{regexp.MustCompile(`(?i)\b(?:in\s+hand)\b`), "use in flight, in progress"},
	{regexp.MustCompile(`(?i)\b(?:(is|are|was|were|be|been)\s+away|(is|are|was)\s+there\s+again)\b`), "use unavailable, unreachable; has reconnected"},
	{regexp.MustCompile(`(?i)\b(?:(stands?|stood|standing)\s+still|standstill)\b`), "use suspended, stalled, paused"},
	{regexp.MustCompile(`(?i)\b(?:(comes?|came|coming)\s+home)\b`), "use finishes, is delivered, is reported"},
	{regexp.MustCompile(`(?i)\b(?:(makes?|made|making)\s+ready)\b`), "use prepares"},
	{regexp.MustCompile(`(?i)\b(?:of\s+(its|their|his)\s+own\s+accord|the\s+word\s+of\s+it|it\s+is\s+none|what\s+became\s+of|what\s+others)\b`), "say it directly: by itself, the acknowledgement, is invalid, the result of, changes by other processes"},
	{regexp.MustCompile(`(?i)\b(?:mend(s|ed|ing)?|heralds?|heralded|leap(s|t|ed|ing)?|bears?|bore|borne|bearing)\b`), "use repair, announce, jump, carry"},
	{regexp.MustCompile(`(?i)\b(?:(has|have|had)\s+its\s+end|came\s+to\s+(its|an)\s+end|the\s+log\s+is\s+another(\s+one)?)\b`), "use has finished, ended; the stream was recreated"},
	{regexp.MustCompile(`(?i)\b(?:(hand(s|ed)|put|puts|gone|goes|going|giv(e|es|en)|gave)\s+back)\b`), "use nak'ed, redelivered, returned"},
	{regexp.MustCompile(`(?i)\b(?:giv(e|es|en|ing)\s+up|gave\s+up)\b`), "use fails for good, is abandoned, stops"},
	{regexp.MustCompile(`(?i)\b(?:(looks?|looked|looking)\s+after|a\s+look)\b`), "use checks, manages; a read"},
	{regexp.MustCompile(`(?i)\b(?:sweeper|(?-i:closer)|mover|keeper|wheel|front\s?door|siblings?)\b`), "use the type's name: JobRescuer, CallExpirer, DeadLetterForwarder, NATS API, layer"},
	{regexp.MustCompile(`(?i)\b(?:attend(s|ed|ing)?|bury|buried|buries|stir(s|red)?|hears?|heard|brooms?)\b`), "use consume, dead-letter, wake, receive, cleaner"},
}

// plainBudget has one row for each package that is not at 0.
var plainBudget = map[string]wordCount{}

// documentBudget has one row for each document that is not at 0.
var documentBudget = map[string]int{}

// documentationBudget is the most words that TestDocumentationHasItsBudget allows. It may only fall.
const documentationBudget = 30000
