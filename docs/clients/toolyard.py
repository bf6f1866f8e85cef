"""A client for both streams of Toolyard in one file, for Python 3.9+, standard library only. Copy it.

    toolyard = Toolyard("http://127.0.0.1:8787", key)
    for event in toolyard.events({"messages": [{"role": "user", "content": "Hello"}]}):
        if event["type"] == "content":
            print(event["delta"]["content"], end="", flush=True)
"""

import json
import urllib.error
import urllib.request


class ToolyardError(Exception):
    def __init__(self, status, body):
        super().__init__(body.get("message", "HTTP %d" % status))
        self.status = status
        self.code = body.get("code", "unknown")
        self.request_id = body.get("request_id")


class Toolyard:
    def __init__(self, base_url, key, timeout=300):
        self.base_url = base_url
        self.key = key
        self.timeout = timeout

    def complete(self, request):
        """A whole answer of /v1/chat/completions."""
        with self._send("/v1/chat/completions", request) as response:
            return json.load(response)

    def events(self, request):
        """Typed events of /api/chat/completions as they come; raises what the stream reports as an error."""
        for event in self._stream("/api/chat/completions", request):
            if event["type"] == "error":
                raise ToolyardError(200, event["error"])
            yield event

    def text(self, request):
        """The text of /v1/chat/completions, piece by piece."""
        for chunk in self._stream("/v1/chat/completions", request):
            if "error" in chunk:
                raise ToolyardError(200, chunk["error"])
            # The usage chunk has no choices.
            for choice in chunk["choices"][:1]:
                piece = choice["delta"].get("content")
                if piece:
                    yield piece

    def _stream(self, path, request):
        with self._send(path, dict(request, stream=True)) as response:
            # Lines are whole, so no character is cut; those that begin with a colon are comments.
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip().decode("utf-8")
                if data == "[DONE]":
                    return
                yield json.loads(data)
        raise ToolyardError(200, {"message": "The stream ended before it was complete.", "code": "stream_incomplete"})

    def _send(self, path, body):
        request = urllib.request.Request(
            self.base_url + path,
            data=json.dumps(body).encode("utf-8"),
            headers={"Authorization": "Bearer " + self.key, "Content-Type": "application/json"},
        )
        try:
            return urllib.request.urlopen(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            with error:
                try:
                    body = json.load(error).get("error", {})
                except ValueError:
                    body = {}
            raise ToolyardError(error.code, body) from None
