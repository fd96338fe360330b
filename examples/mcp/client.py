"""A client of the Model Context Protocol, by the standard library alone: it lists the tools, runs a command, and reads back what that has left.
It starts "sandjet mcp", as desktop programs do: python3 examples/mcp/client.py. With --http it asks $SANDJET_URL/mcp instead."""
import json
import os
import subprocess
import sys
import urllib.request
import uuid

REVISION = "2026-07-28"


class Stdio:
    """Starts the server and speaks with it by lines."""

    def __init__(self):
        self.server = subprocess.Popen(["sandjet", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, message):
        self.server.stdin.write(json.dumps(message).encode() + b"\n")
        self.server.stdin.flush()
        for line in self.server.stdout:
            answer = json.loads(line)
            if answer.get("id") == message["id"]:  # others are notifications
                return answer
        raise SystemExit("the server has ended")

    def close(self):
        self.server.stdin.close()
        return self.server.wait()


class HTTP:
    """Asks a gateway. Its answer is a JSON text or a stream of events, whose last one has it."""

    def ask(self, message):
        params = message["params"]
        headers = {
            "Authorization": "Bearer " + os.environ["SANDJET_KEY"], "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": REVISION, "Mcp-Method": message["method"],
        }
        if name := params.get("name") or params.get("uri"):
            headers["Mcp-Name"] = name
        # A conversation keeps what its calls have left in one list. "sandjet mcp" has one of its own.
        url = os.environ["SANDJET_URL"].rstrip("/") + "/mcp?conversation=example-mcp"
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(message).encode(), headers)) as response:
            text = response.read().decode()
        events = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
        return json.loads(events[-1] if events else text)

    def close(self):
        return 0


server = HTTP() if "--http" in sys.argv else Stdio()
asked = 0


def request(method, **params):
    """Sends a request and returns its result."""
    global asked
    asked += 1
    meta = params.setdefault("_meta", {})
    meta |= {"io.modelcontextprotocol/protocolVersion": REVISION, "io.modelcontextprotocol/clientCapabilities": {}}
    answer = server.ask({"jsonrpc": "2.0", "id": asked, "method": method, "params": params})
    if "error" in answer:
        raise SystemExit(f"{method}: {answer['error']['message']}")
    return answer["result"]


print("tools:", *(tool["name"] for tool in request("tools/list")["tools"]))

# The mark has a tool use that is sent again, after a lost connection, find its call: it runs once.
mark = {"sandjet/idempotencyKey": str(uuid.uuid4())}
# What is new below outputs is an artifact, and what is written again as it was is none: hence a new name.
command = f"mkdir -p outputs; echo 'five letters' > note.txt; wc -c < note.txt | tee outputs/count-{uuid.uuid4()}.txt"
for _ in range(2):
    result = request("tools/call", name="bash", arguments={"command": command}, _meta=dict(mark))
print("bash:", result["content"][0]["text"].splitlines()[0].strip())

print("file:", request("resources/read", uri="sandjet://default/note.txt")["contents"][0]["text"].strip())
for link in result["content"][1:]:  # what the call has left for people
    print("artifact:", request("resources/read", uri=link["uri"])["contents"][0]["text"].strip())
sys.exit(server.close())
