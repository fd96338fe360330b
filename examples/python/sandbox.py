"""A sandbox for programs in Python, by the standard library alone: python3 examples/python/sandbox.py. Copy the class, and give its methods
bash, write and read to a framework as tools: they have the types and the docstrings that these ask for."""
import json
import os
import urllib.error
import urllib.request
import uuid


class Sandbox:
    """A session of /v1/sandbox: files stay from one request to the next, until it is closed. The same name is the same session."""

    def __init__(self, name=None):
        self.name = name or f"python-{uuid.uuid4()}"
        self.url = os.environ["SANDJET_URL"].rstrip("/") + "/v1/sandbox/"
        self.key = {"Authorization": "Bearer " + os.environ["SANDJET_KEY"]}

    def _ask(self, route, body=None, method="POST"):
        data = None if body is None else json.dumps({"session_id": self.name, **body}).encode()
        # Asked again with the same key, after a lost connection, a request is not carried out again.
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4()), **self.key}
        for again in range(3):
            try:
                with urllib.request.urlopen(urllib.request.Request(self.url + route, data, headers, method=method)) as response:
                    return json.load(response)
            except urllib.error.HTTPError as e:
                problem = json.load(e)["error"]
                raise RuntimeError(f"{route}: {problem.get('message', problem['code'])}") from None
            except OSError:
                if again == 2:
                    raise

    def bash(self, command: str) -> str:
        """Runs a shell command in the sandbox, and returns what it prints and its exit code."""
        got = self._ask("bash", {"command": command})
        return f"{got['stdout']}{got['stderr']}[exit code {got['exit_code']}]"

    def write(self, path: str, content: str) -> str:
        """Writes a text file in the sandbox, by its path from the root of the workspace."""
        self._ask("write", {"path": path, "content": content})
        return f"wrote {path}"

    def read(self, path: str) -> str:
        """Returns the content of a text file in the sandbox."""
        return self._ask("read", {"path": path})["content"]

    def close(self):
        """Ends the session, with its files."""
        self._ask(f"sessions/me/{self.name}", method="DELETE")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


if __name__ == "__main__":
    with Sandbox() as box:
        print(box.write("numbers.txt", "3\n1\n2\n"))
        print(box.bash("sort numbers.txt > sorted.txt && wc -l < sorted.txt; false"))
        print(box.read("sorted.txt"), end="")
        try:
            box.read("missing.txt")
        except RuntimeError as e:
            print(e)
