"""A small hub: one repository of models, served as the Hugging Face Hub serves its own."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """What the repository holds, and what was asked for."""

    def __init__(self, repository: str, files: Mapping[str, bytes]) -> None:
        """Nothing is served yet."""
        self.repository = repository
        self.files = files
        self.asked: list[str] = []

    def about(self) -> dict[str, Any]:
        """The repository, as its API tells."""
        names = [{"rfilename": name} for name in sorted(self.files)]
        return {"id": self.repository, "sha": COMMIT, "siblings": names}

    def tree(self) -> list[dict[str, Any]]:
        """Its files with sizes."""
        return [
            {"type": "file", "path": name, "size": len(body), "oid": _etag(body)}
            for name, body in sorted(self.files.items())
        ]


def _etag(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


@contextmanager
def serving(hub: Hub) -> Iterator[str]:
    """The hub on a free port; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append(path)
            api = f"/api/models/{hub.repository}"
            file = path.partition(f"/{hub.repository}/resolve/{COMMIT}/")[2]
            if file in hub.files:
                self._send(200, hub.files[file], "application/octet-stream", with_body)
            elif path.startswith(f"{api}/tree/{COMMIT}"):
                self._send(200, json.dumps(hub.tree()).encode(), "application/json", with_body)
            elif path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
                self._send(200, json.dumps(hub.about()).encode(), "application/json", with_body)
            else:
                self.send_response(404)
                code = "RepoNotFound" if hub.repository not in path else "RevisionNotFound"
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _send(self, status: int, body: bytes, kind: str, with_body: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{_etag(body)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
