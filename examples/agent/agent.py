"""An agent in one loop: a model of the Messages API says which tools to run, Sandjet runs them, and the model reads the results until it is
done. Run it with: eval "$(sandjet info --shell)"; MODEL_KEY=... python3 examples/agent/agent.py 'What is in this folder?'"""
import json
import os
import sys
import urllib.request

MODEL = os.environ.get("MODEL_URL", "https://api.anthropic.com/v1/messages")
SANDJET = os.environ["SANDJET_URL"].rstrip("/")
MODEL_KEY = {"X-Api-Key": os.environ.get("MODEL_KEY", ""), "Anthropic-Version": "2023-06-01"}
KEY = {"Authorization": "Bearer " + os.environ["SANDJET_KEY"]}


def ask(method, url, headers, body=None):
    """Sends JSON and returns the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def run(use):
    """Runs a tool. The model's id is the call's: asked for again, it is not run again."""
    call = {"id": use["id"], "conversation": "agent", "dialect": "claude", "tool": use["name"], "input": use["input"]}
    result = {}
    while "text" not in result:  # where the model used the tool wrongly, it says how to do better
        result = ask("POST", SANDJET + "/v1/calls?wait=60s", KEY, call)
    failed = result["status"] != "completed"
    return {"type": "tool_result", "tool_use_id": use["id"], "content": result["text"], "is_error": failed}


tools = ask("GET", SANDJET + "/v1/tools?dialect=claude", KEY)["tools"]
messages = [{"role": "user", "content": " ".join(sys.argv[1:])}]
while True:
    body = {"model": os.environ.get("MODEL", "claude-sonnet-4-5"), "max_tokens": 4096, "tools": tools, "messages": messages}
    content = ask("POST", MODEL, MODEL_KEY, body)["content"]
    messages.append({"role": "assistant", "content": content})
    for part in content:
        if part["type"] == "text":
            print(part["text"])
    results = [run(part) for part in content if part["type"] == "tool_use"]
    if not results:
        break
    messages.append({"role": "user", "content": results})
