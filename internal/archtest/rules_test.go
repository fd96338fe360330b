package archtest

// floors says which packages of ours a package may import, tests included. A package belongs to
// the longest row that is its path or a folder above it. A row's own folder is always allowed, but
// for leaves, which may not import one another.
var floors = map[string]struct {
	may []string
	why string
}{
	"schemas":                       {nil, "the vocabulary has nothing below it"},
	"internal/safefs":               {nil, "it knows files, not calls"},
	"internal/clock":                {nil, "it reads clocks and does not know what for"},
	"internal/gopool":               {nil, "it runs functions and does not know which"},
	"internal/wsconn":               {nil, "it moves messages and does not know what they say"},
	"streams":                       {[]string{"schemas", "internal/clock", "internal/gopool"}, "the log does not know who uses it"},
	"lifecycle":                     {[]string{"schemas", "streams"}, "state changes are verbs on the log, and know no service that calls them"},
	"streams/natsauth":              {[]string{"schemas", "streams"}, "who may speak NATS is a matter of its own: the log does not know users"},
	"providers":                     {[]string{"schemas", "internal/safefs"}, "a backend does not know that there is a log"},
	"providers/local":               {[]string{"schemas", "providers", "providers/providertest", "providers/local/box", "providers/local/boxentry", "providers/local/confine", "internal/safefs"}, "a leaf knows its interface and nothing beside it"},
	"providers/local/box":           {[]string{"providers/local/confine"}, "it is process 1 of every box: small, and of the standard library"},
	"providers/local/boxentry":      {[]string{"providers/local/box"}, "it runs before everything else in the process"},
	"providers/local/confine":       {nil, "it runs inside the box, where nothing of ours may be initialised"},
	"providers/local/isolationtest": {[]string{"schemas", "providers", "providers/local", "providers/local/confine", "internal/safefs"}, "it tries to get out of the leaf's boxes"},
	"providers/providertest":        {[]string{"schemas", "providers", "internal/safefs"}, "the suite knows the interface only"},
	"providers/supervisor":          {[]string{"schemas", "providers"}, "it gives jobs to any provider by the interface alone"},
	"records":                       {[]string{"schemas", "streams", "records/seal"}, "siblings meet in the log and in cmd"},
	"records/seal":                  {[]string{"schemas"}, "it seals bytes and does not know whose"},
	"records/seal/awskms":           {[]string{"schemas", "records/seal"}, "one key service, and nothing of what is sealed"},
	"tools":                         {[]string{"schemas", "providers", "internal/safefs"}, "compiling and rendering are pure"},
	"workers":                       {[]string{"schemas", "streams", "lifecycle", "providers", "workers/guard", "workers/leases", "workers/limits", "workers/maintenance", "workers/sandboxes", "tools", "internal/safefs", "internal/clock", "internal/gopool"}, "siblings meet in the log and in cmd"},
	"workers/guard":                 {[]string{"schemas"}, "it knows a command's text and nothing else"},
	"workers/leases":                {[]string{"schemas", "streams", "internal/clock"}, "who lives is known before what is run"},
	"workers/limits":                {[]string{"schemas"}, "limits must work without the log"},
	"workers/maintenance":           {[]string{"schemas", "streams", "lifecycle", "workers/leases", "workers/limits", "internal/wait"}, "it keeps the log in order and knows no provider"},
	"workers/sandboxes":             {[]string{"schemas", "streams", "providers", "workers/leases", "internal/clock"}, "it keeps instances and does not know what runs in them"},
	"admission":                     {[]string{"schemas", "streams", "lifecycle"}, "every way in leads to it, and it knows none of them"},
	"delivery":                      {[]string{"schemas", "streams"}, "it knows when to try again, not how to reach anybody"},
	"delivery/webhook":              {[]string{"schemas", "delivery"}, "a way to receivers does not know the log"},
	"gateway":                       {[]string{"schemas", "streams", "streams/natsauth", "admission", "gateway/quota", "gateway/attachtoken", "internal/wsconn", "lifecycle"}, "siblings meet in the log and in cmd"},
	"gateway/natsapi":               {[]string{"schemas", "streams", "admission"}, "another way in beside HTTP, which it does not know"},
	"gateway/quota":                 {[]string{"schemas"}, "it counts and does not know what"},
	"gateway/attachtoken":           {[]string{"schemas"}, "a token is verified without asking anybody"},
	"define":                        {[]string{"schemas"}, "a manifest is made without any server"},
	"client":                        {[]string{"schemas"}, "a client needs nothing of the server"},
	"bench":                         {[]string{"schemas", "streams", "lifecycle", "streams/natsauth", "providers", "providers/local", "providers/providertest", "workers", "workers/maintenance", "records", "gateway", "client"}, "it measures every floor"},
	"cmd/sandjet":                   {[]string{"schemas", "streams", "lifecycle", "streams/natsauth", "providers", "providers/local", "providers/local/boxentry", "providers/supervisor", "workers", "workers/limits", "workers/maintenance", "tools", "records", "records/seal", "records/seal/awskms", "gateway", "gateway/natsapi", "delivery", "delivery/webhook", "client", "bench", "internal/safefs"}, "the roof: the only place where everything meets"},
	"examples":                      {nil, "an example shows the HTTP API, without a library of ours"},
	"cmd/sandjet-box":               {[]string{"providers/local/box"}, "the box alone"},
	"internal/natstest":             {[]string{"schemas", "streams", "streams/natsauth", "internal/faultproxy"}, "the real log for tests, with routes that can be cut"},
	"internal/longtest":             {nil, "it knows how long a test may take, not what it shows"},
	"internal/testreport":           {nil, "it reads what go test says"},
	"internal/wait":                 {nil, "it waits and does not know for what"},
	"internal/redistest":            {nil, "a real server for tests, and nothing of ours"},
	"internal/gen":                  {[]string{"schemas", "streams"}, "documents come from the types and the topology"},
	"internal/archtest":             {nil, "rules look at the tree from outside"},
	"internal/crashtest":            {[]string{"schemas", "client", "streams", "internal/replaytest", "internal/streamcheck", "internal/faultproxy"}, "it drives the program from outside"},
	"internal/clustertest":          {[]string{"schemas", "streams", "lifecycle", "internal/natstest", "internal/streamcheck"}, "the log on several servers, seen from outside"},
	"internal/faultproxy":           {nil, "it breaks connections and does not know whose"},
	"internal/streamcheck":          {nil, "it judges transcripts of any client"},
	"internal/clienttest":           {[]string{"schemas", "streams", "gateway", "client", "records/seal", "internal/faultproxy", "internal/streamcheck"}, "real clients meet the real gateway"},
	"internal/replaytest":           {[]string{"schemas", "streams", "gateway", "client", "internal/faultproxy", "internal/streamcheck"}, "the real gateway goes through what happens in the world"},
}

// anybodyMay is what every package may import: it stands below all and knows nothing of ours.
var anybodyMay = []string{"internal/wait"}

// testsMay is what tests may import beyond their package's row.
var testsMay = map[string][]string{
	"":                     {"internal/natstest", "internal/longtest"},
	"workers":              {"providers/providertest", "providers/local", "providers/supervisor"},
	"workers/limits":       {"internal/redistest"},
	"tools":                {"providers/providertest", "providers/local"},
	"gateway":              {"records", "gateway/natsapi", "records/seal", "client", "providers", "providers/supervisor", "providers/providertest"},
	"delivery":             {"delivery/webhook", "lifecycle"},
	"delivery/webhook":     {"streams", "lifecycle"},
	"admission":            {"records"},
	"gateway/attachtoken":  {"records/seal"},
	"client":               {"streams/natsauth", "gateway", "gateway/natsapi", "records", "streams", "providers", "workers"},
	"providers/local/box":  {"providers/local/boxentry"},
	"cmd/sandjet":          {"internal/redistest", "records/seal/awskms/kmstest"},
	"internal/crashtest":   {"internal/redistest"},
	"providers/supervisor": {"providers/providertest", "providers/local"},
	"streams":              {"streams/natsauth", "lifecycle"},
	"internal/replaytest":  {"streams/natsauth"},
}

// owners says where a third-party module may be imported: tests included, but for those in tests.
var owners = []struct {
	module string
	homes  []string
	why    string
}{
	{"github.com/nats-io/", []string{"streams", "internal/natstest", "bench", "client"}, "acks and subjects stay in one place; the benchmark compares with the bare log; clients bring their own connection"},
	{"github.com/gorilla/websocket", []string{"internal/wsconn", "client", "bench"}, "one protocol, two ends; the benchmark is a client"},
	{"github.com/alecthomas/kong", []string{"cmd/sandjet"}, "flags are a matter of the program"},
	{"github.com/goccy/go-yaml", []string{"cmd/sandjet"}, "so is its configuration"},
	{"github.com/prometheus/", []string{"gateway", "cmd/sandjet"}, "other packages count, and let the edge show it"},
	{"github.com/redis/", []string{"workers/limits/redislimits"}, "caps are shared in one place; nothing else may lean on Redis"},
	{"github.com/aws/", []string{"records/seal/awskms"}, "one package knows AWS; rings know a key service"},
	{"mvdan.cc/sh/", []string{"workers/guard"}, "commands are understood in one place; everything else passes them on as text"},
	{"github.com/oklog/ulid", []string{"schemas"}, "ids are made in one place"},
	{"github.com/invopop/jsonschema", []string{"internal/gen", "tools"}, "documents are made at build time, but for the tools' own definitions"},
	{"golang.org/x/sys", []string{"providers/local", "internal/safefs", "cmd/sandjet", "streams"}, "system calls stay at the edge to the kernel"},
}

// ownersInTests are further homes for tests alone.
var ownersInTests = map[string][]string{
	"github.com/nats-io/":          {"gateway", "workers", "records", "cmd/sandjet", "internal/crashtest"},
	"github.com/gorilla/websocket": {"cmd/sandjet", "gateway", "internal"},
	"golang.org/x/sys":             {"internal", "workers", "providers"},
}

// testModules are for tests only.
var testModules = map[string]string{
	"github.com/rogpeppe/go-internal":                          "scripts as tests, and their txtar files",
	"github.com/santhosh-tekuri/jsonschema":                    "validates the generated documents",
	"github.com/standard-webhooks/standard-webhooks/libraries": "the public library verifies what we sign",
	"go.uber.org/goleak":                                       "finds goroutines left behind",
	"pgregory.net/rapid":                                       "properties",
}

// inits are the packages that may have an init function.
var inits = map[string]string{
	"providers/local/boxentry": "the box is this same program under another name: it must start before any other package is initialised (docs/adr/0008)",
}
