"""A Hugging Face hub on this machine: serves the files of one folder as one model, and notes what it was asked for."""

import json
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Self

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class LocalHub:
    """Use it as a context; `url` is its address."""

    def __init__(self, folder: Path, name: str) -> None:
        self.downloaded: list[str] = []  # files, in turn
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        about = {"id": name, "modelId": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
        tree = [{"type": "file", "path": f, "size": (folder / f).stat().st_size, "oid": COMMIT} for f in files]
        pages = {
            f"api/models/{name}": about,
            f"api/models/{name}/revision/main": about,
            f"api/models/{name}/tree/{COMMIT}": tree,
        }
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def answer(self, with_body: bool) -> None:
                path = self.path.partition("?")[0].strip("/")
                prefix, _, file = path.partition("/resolve/")
                file = file.partition("/")[2]
                if path in pages:
                    self.send(200, json.dumps(pages[path]).encode(), {"Content-Type": "application/json"}, with_body)
                elif prefix == name and file in files:
                    content = (folder / file).read_bytes()
                    if with_body:
                        hub.downloaded.append(file)
                    tag = {"ETag": f'"{sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
                    self.send(200, content, tag, with_body)
                else:
                    missing = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
                    self.send(404, b"", missing if prefix == name else {"X-Error-Code": "RepoNotFound"}, with_body)

            def send(self, status: int, content: bytes, headers: dict[str, str], with_body: bool) -> None:
                self.send_response(status)
                for key, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(key, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Self:
        Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
