// The public conformance suite of the Durable Streams protocol, against the server at STREAMS_URL.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({ baseUrl: process.env.STREAMS_URL })
