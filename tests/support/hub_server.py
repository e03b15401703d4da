"""A server on loopback that speaks the part of the Hugging Face Hub's API with which files are downloaded."""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAME, COMMIT = "Helsinki-NLP/opus-mt-en-de", "0123456789abcdef0123456789abcdef01234567"


class Handler(BaseHTTPRequestHandler):
    """Answers requests for files of ``directory``, one commit of a model; ``sent`` has the names of those sent."""

    directory: Path
    sent: list[str]

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        if content := self.answer():
            self.sent.append(self.path.rpartition("/")[2])
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> bytes | None:
        """Send the headers; return the content, or None if there is no such file."""
        found = re.fullmatch(r"/(.+)/resolve/([^/]+)/([^/]+)", self.path)
        name, commit, file = found.groups() if found else ("", "", "")
        path, code = self.directory / file, None
        if name != NAME:
            code = "RepoNotFound"
        elif commit not in ("main", COMMIT):
            code = "RevisionNotFound"
        elif not path.is_file():
            code = "EntryNotFound"
        content = b"" if code else path.read_bytes()
        self.send_response(404 if code else 200)
        headers = {"X-Error-Code": code} if code else {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        headers |= {"X-Repo-Commit": COMMIT, "Content-Length": str(len(content))}
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()
        return content or None


@contextmanager
def hub_server(directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve the files of a directory as a model; yield the address, and the names of the files sent so far."""
    handler = type("HandlerOfModel", (Handler,), {"directory": directory, "sent": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
