"""A download that goes on where it was cut: `NAME.part` grows beside `NAME`, and is handed over when it is whole."""

import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import requests

from hyperproto.data.pool import Progress
from hyperproto.errors import DataError
from hyperproto.files import atomic_write

PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds before each new try; bytes that arrive in between start the count anew
TIMEOUT = 30.0  # seconds without a byte
_BLOCK = 1 << 16  # bytes written at a time: what a cut can lose
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


class Cut(Exception):  # noqa: N818 - it is not the user's error, and another try may well do
    """The download stopped before its end."""


@dataclass(frozen=True)
class ResumingDownloader:
    """The `downloader` that pooch calls for the file `target`; pooch then checks what it gets, and moves it there."""

    target: Path
    size: int = 0  # bytes, for the progress where a server does not say; 0 if unknown
    progress: Progress | None = None

    def __call__(self, url: str, output_file: str, pooch: object = None) -> None:
        """Fetch `url` into `output_file`; whatever stops it, the bytes that have arrived stay for the next call."""
        part = Part(self.target, url)
        failures, longest = 0, part.size
        while not part.is_whole:
            try:
                self._fetch(part)
                break
            except Cut as cut:
                if part.size > longest:
                    failures, longest = 0, part.size
                if failures == len(PAUSES):
                    raise DataError(f"{url}: stopped {failures + 1} times in a row ({cut}); {part.words()}") from None
                time.sleep(PAUSES[failures])
                failures += 1
        part.hand_over(output_file)

    def _fetch(self, part: "Part") -> None:
        headers = {"Accept-Encoding": "identity", **part.headers}  # ranges count the bytes of the file as it is
        try:
            with requests.get(part.url, headers=headers, stream=True, timeout=TIMEOUT) as response:
                part.accept(response)
                with part.path.open("ab") as file:
                    for block in response.iter_content(_BLOCK):
                        file.write(block)
                        if self.progress is not None:
                            self.progress(file.tell(), part.total or self.size or file.tell())
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            raise Cut(str(error)) from None
        except requests.RequestException as error:
            raise DataError(f"{part.url}: {error}; nothing can be fetched from there") from None
        if part.total and part.size != part.total:
            raise Cut(f"{part.size:,} bytes where {part.total:,} were announced")


class Part:
    """The bytes that have arrived, in `NAME.part`, and what they are the beginning of, in `NAME.part.json`."""

    def __init__(self, target: Path, url: str) -> None:
        self.url = url
        self.path = target.with_name(f"{target.name}.part")
        self._notes = target.with_name(f"{target.name}.part.json")
        self.validator = ""  # the ETag, or the date, of the file: what tells two versions of it apart
        self.total = 0  # bytes of the whole file; 0 if the server did not say
        try:
            notes = json.loads(self._notes.read_text())
        except FileNotFoundError:
            return
        if notes["url"] == url:
            self.validator, self.total = notes["validator"], notes["total"]

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def is_whole(self) -> bool:
        """Nothing is missing: an earlier call was killed just before it handed the file over."""
        return 0 < self.total == self.size

    @property
    def headers(self) -> dict[str, str]:
        """What to send to get only the rest; without a validator nothing says that it is the rest of the same file."""
        if not self.size or not self.validator:
            return {}
        weak = self.validator.startswith("W/")  # not allowed in If-Range; `accept` compares it instead
        return {"Range": f"bytes={self.size}-"} | ({} if weak else {"If-Range": self.validator})

    def accept(self, response: requests.Response) -> None:
        """Make ready for the body of `response`: go on, or start anew; raise where there is no body to be had."""
        status = f"{response.status_code} {response.reason}"
        if response.status_code == requests.codes.partial_content:
            if not self._continues(response):
                self._discard()
                raise Cut("the file has changed on the server")
        elif response.status_code == requests.codes.requested_range_not_satisfiable:
            self._discard()
            raise Cut(f"{status}: the file on the server is not longer than the part of it here")
        elif response.status_code == requests.codes.too_many_requests or response.status_code >= 500:
            raise Cut(f"the server answers {status}")
        elif response.status_code != requests.codes.ok:
            raise DataError(
                f"{self.url}: the server answers {status}; if the file has moved, fetch it by hand from its new place"
            )
        else:
            self._begin(response)

    def hand_over(self, output_file: str) -> None:
        """Become `output_file`."""
        with self.path.open("ab") as file:
            os.fsync(file.fileno())
        self.path.replace(output_file)
        self._notes.unlink(missing_ok=True)

    def words(self) -> str:
        """Say what is there and what to do."""
        if not self.headers:
            return "nothing is left to go on from; check the network and run the command again"
        of = f" of {self.total:,}" if self.total else ""
        return f"{self.size:,}{of} bytes are kept in {self.path}: run the command again to go on from there"

    def _continues(self, response: requests.Response) -> bool:
        match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        found = _validator(response)
        same = found == self.validator or (not found and "If-Range" in self.headers)
        return same and match is not None and int(match[1]) == self.size

    def _begin(self, response: requests.Response) -> None:
        self._discard()  # first the old bytes go, then the new notes come: a kill in between can mix no two files
        if response.headers.get("Content-Encoding", "identity") == "identity":  # else neither is of what is written
            self.validator = _validator(response)
            self.total = int(response.headers.get("Content-Length", 0))
        notes = {"url": self.url, "validator": self.validator, "total": self.total}
        with atomic_write(self._notes) as file:
            file.write(json.dumps(notes).encode())

    def _discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)
        self.validator, self.total = "", 0


def _validator(response: requests.Response) -> str:
    return response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
