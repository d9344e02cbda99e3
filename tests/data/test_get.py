"""Downloads from a real server on this machine, which cuts, forgets and changes what it serves."""

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pooch
import pytest
from typer.testing import CliRunner

from hyperproto import cli
from hyperproto.data import get, open_pool
from hyperproto.data.get import Download
from hyperproto.errors import ConfigError, DataError

BODY = os.urandom(1 << 20)
HALF = 1 << 19


@dataclass
class Site:
    """What the server has and does; what it was asked and how much it sent."""

    url: str = ""
    body: bytes = BODY
    validators: dict[str, str] = field(default_factory=lambda: {"ETag": '"one"'})
    ranges: bool = True  # does it know Range?
    only_strong: bool = True  # does it know If-Range?
    status: list[int] = field(default_factory=list)  # of the next answers, instead of a file
    cuts: list[int] = field(default_factory=list)  # bytes after which the next answers break off
    always_cut: int | None = None
    chunked: bool = False
    wrong_range: bool = False
    silent_rest: bool = False  # does a partial answer come without ETag and date?
    gzipped: bool = False
    length: str | None = None  # what it says in Content-Length; "" for nothing
    surplus: bytes = b""  # what follows behind the body
    stalls: list[int] = field(default_factory=list)  # bytes after which the next answers go on no more
    closing: threading.Event = field(default_factory=threading.Event)
    asked: list[dict[str, str]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    after: Callable[["Site"], None] = lambda site: None

    def checksum(self) -> str:
        return f"sha256:{hashlib.sha256(self.body).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        site = self.site
        site.asked.append({key: self.headers[key] for key in ("Range", "If-Range") if key in self.headers})
        assert self.headers["Accept-Encoding"] == "identity"  # else no answer, and the download fails
        site.sent.append(0)
        self.close_connection = True
        if site.status:
            self.send_response(site.status.pop(0))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = self._start()
        if start is not None and start >= len(site.body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(site.body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = site.body[start or 0 :]
        self.send_response(200 if start is None else 206)
        for key, value in site.validators.items():
            if start is None or not site.silent_rest:
                self.send_header(key, value)
        if site.gzipped:
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        if start is not None:
            first = start - 1 if site.wrong_range else start
            self.send_header("Content-Range", f"bytes {first}-{len(site.body) - 1}/{len(site.body)}")
        body += site.surplus
        length = str(len(body)) if site.length is None else site.length
        if site.chunked or length:
            self.send_header(*(("Transfer-Encoding", "chunked") if site.chunked else ("Content-Length", length)))
        self.end_headers()
        if site.stalls:
            self.wfile.write(body[: site.stalls.pop(0)])
            self.wfile.flush()
            site.closing.wait()
            return
        cut = site.cuts.pop(0) if site.cuts else site.always_cut
        part = body[:cut]
        if site.chunked:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n" + (b"0\r\n\r\n" if cut is None else b""))
        else:
            self.wfile.write(part)
        site.sent[-1] = len(part)
        site.after(site)

    def _start(self) -> int | None:
        """Return the first byte of a range that is to be honoured."""
        known = list(self.site.validators.values())
        condition = self.headers.get("If-Range")
        if not self.site.ranges or "Range" not in self.headers:
            return None
        if self.site.only_strong and condition is not None and condition not in known:
            return None
        return int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server that holds the one file of `omniglot`."""
    served = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"site": served}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}/data.bin"
    monkeypatch.setattr(get, "PAUSES", (0.0, 0.0))
    monkeypatch.setenv("NO_PROXY", "*")
    offer(monkeypatch, Download(served.url, "data.bin", served.checksum()))
    yield served
    served.closing.set()
    server.shutdown()
    thread.join()
    server.server_close()


def offer(monkeypatch: pytest.MonkeyPatch, *downloads: Download, name: str = "omniglot") -> None:
    monkeypatch.setitem(get.DOWNLOADS, name, downloads)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_plain_download_is_checked_and_leaves_nothing_else(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = get.get("omniglot", tmp_path / "new" / "folder", lambda done, total: seen.append((done, total)))
    assert found[0].path == tmp_path / "new" / "folder" / "data.bin"
    assert found[0].path.read_bytes() == BODY
    assert "downloaded, as published" in found[0].words()
    assert site.checksum() in found[0].words()
    assert names(tmp_path / "new" / "folder") == {"data.bin"}
    assert site.asked == [{}]
    assert seen[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert found[0].path.stat().st_mode & 0o444 == 0o444 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_home_is_found_and_pooch_keeps_quiet(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pooch.get_logger().setLevel("INFO")
    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert get.get("omniglot", Path("~/data"))[0].path == tmp_path / "data" / "data.bin"
    assert caplog.text == ""


def test_md5_does_as_well(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checksum = f"md5:{hashlib.md5(BODY).hexdigest()}"
    offer(monkeypatch, Download(site.url, "data.bin", checksum))
    assert get.get("omniglot", tmp_path)[0].checksum == checksum
    assert get.get("omniglot", tmp_path)[0].note == "already there, as published"


def test_a_file_that_is_there_is_not_downloaded_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(BODY)
    assert "already there, as published" in get.get("omniglot", tmp_path)[0].words()
    assert site.asked == []


def test_a_file_of_the_user_is_never_replaced(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"mine")
    mine = hashlib.sha256(b"mine").hexdigest()
    with pytest.raises(DataError, match=f"not the published one.*{mine}.*{site.checksum()}.*move it away.*--out"):
        get.get("omniglot", tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == b"mine"
    assert site.asked == []


@pytest.mark.parametrize(
    "validators",
    [{"ETag": '"one"'}, {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, {"ETag": 'W/"one"'}],
    ids=["etag", "date", "weak"],
)
def test_a_cut_download_goes_on_where_it_was_cut(site: Site, tmp_path: Path, validators: dict[str, str]) -> None:
    site.validators, site.cuts = validators, [HALF]
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY
    value = next(iter(validators.values()))
    condition = {} if value.startswith("W/") else {"If-Range": value}
    start = int(site.asked[1]["Range"].removeprefix("bytes=").removesuffix("-"))
    assert HALF - get._BLOCK <= start <= HALF
    assert site.asked == [{}, {"Range": f"bytes={start}-", **condition}]
    assert sum(site.sent) == len(BODY) + HALF - start
    assert names(tmp_path) == {"data.bin"}


def test_a_later_call_goes_on_too(site: Site, tmp_path: Path) -> None:
    site.always_cut = 0
    site.cuts = [HALF]
    with pytest.raises(DataError, match="stopped 3 times in a row") as caught:
        get.get("omniglot", tmp_path)
    part = tmp_path / "data.bin.part"
    kept = part.stat().st_size
    assert f"{kept:,} of 1,048,576 bytes are kept in {part}: run the command again to go on" in str(caught.value)
    assert kept >= HALF - get._BLOCK
    assert part.read_bytes() == BODY[:kept]
    assert names(tmp_path) == {"data.bin.part", "data.bin.part.json"}
    site.always_cut = None
    site.asked.clear()
    get.get("omniglot", tmp_path)
    assert site.asked == [{"Range": f"bytes={kept}-", "If-Range": '"one"'}]
    assert (tmp_path / "data.bin").read_bytes() == BODY
    assert names(tmp_path) == {"data.bin"}


def test_tries_are_counted_from_the_last_bytes_that_came(site: Site, tmp_path: Path) -> None:
    site.cuts = [1 << 17] * 7  # more often than there are pauses
    get.get("omniglot", tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == BODY
    assert len(site.asked) > 1 + len(get.PAUSES)


def test_a_server_without_ranges_sends_everything_again(site: Site, tmp_path: Path) -> None:
    site.ranges, site.cuts = False, [HALF]
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY
    assert len(site.asked) == 2
    assert site.sent == [HALF, len(BODY)]


def test_a_server_without_ranges_that_always_cuts_is_given_up(site: Site, tmp_path: Path) -> None:
    site.ranges, site.always_cut = False, HALF
    with pytest.raises(DataError, match="stopped 3 times in a row"):
        get.get("omniglot", tmp_path)
    assert len(site.asked) == 3


def change(site: Site) -> None:
    """Put a new version on the server, as long as the old one."""
    site.body = BODY[::-1]
    site.validators = {key: value.replace("one", "two") for key, value in site.validators.items()}


@pytest.mark.parametrize("etag", ['"one"', 'W/"one"'])
@pytest.mark.parametrize("knows_if_range", [True, False])
def test_two_versions_are_never_glued(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, etag: str, knows_if_range: bool
) -> None:
    offer(monkeypatch, Download(site.url, "data.bin", None))  # no checksum would tell
    site.validators, site.cuts, site.after = {"ETag": etag}, [HALF], change
    site.only_strong = knows_if_range
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY[::-1]
    assert "Range" in site.asked[1]


def test_a_longer_version_under_the_same_etag_is_not_glued(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(site: Site) -> None:
        site.body = b"new" + BODY

    offer(monkeypatch, Download(site.url, "data.bin", None))
    site.cuts, site.after = [HALF], grow
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == b"new" + BODY


def test_the_wrong_range_is_not_taken(site: Site, tmp_path: Path) -> None:
    site.cuts, site.wrong_range = [HALF], True
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY
    assert ["Range" in headers for headers in site.asked] == [False, True, False]


def test_a_server_that_compares_need_not_repeat_the_etag(site: Site, tmp_path: Path) -> None:
    site.cuts, site.silent_rest = [HALF], True
    get.get("omniglot", tmp_path)
    assert len(site.asked) == 2
    assert (tmp_path / "data.bin").read_bytes() == BODY


def test_a_weak_etag_that_is_not_repeated_starts_anew(site: Site, tmp_path: Path) -> None:
    site.validators, site.cuts, site.silent_rest = {"ETag": 'W/"one"'}, [HALF], True
    get.get("omniglot", tmp_path)
    assert ["Range" in headers for headers in site.asked] == [False, True, False]


def test_bytes_of_another_process_do_not_get_in(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def intrude(done: int, total: int) -> None:
        if len(site.asked) == 1:
            with (tmp_path / "data.bin.part").open("ab") as file:
                file.write(b"x")

    offer(monkeypatch, Download(site.url, "data.bin", None))
    assert get.get("omniglot", tmp_path, intrude)[0].path.read_bytes() == BODY


def test_a_server_that_compresses_all_the_same(site: Site, tmp_path: Path) -> None:
    site.gzipped, site.cuts = True, [HALF]
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY
    assert site.asked == [{}, {}]  # a range would be one of the compressed file


def test_without_a_validator_a_download_starts_anew(site: Site, tmp_path: Path) -> None:
    site.validators, site.always_cut = {}, HALF
    with pytest.raises(DataError, match=r"nothing is left to go on from; check the network and run the command again"):
        get.get("omniglot", tmp_path)
    site.always_cut = None
    get.get("omniglot", tmp_path)
    assert all("Range" not in headers for headers in site.asked)


def test_a_part_of_another_url_is_not_continued(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.always_cut = HALF
    site.ranges = False
    with pytest.raises(DataError):
        get.get("omniglot", tmp_path)
    site.always_cut, site.ranges = None, True
    site.asked.clear()
    offer(monkeypatch, Download(f"{site.url}?mirror", "data.bin", site.checksum()))
    get.get("omniglot", tmp_path)
    assert site.asked == [{}]


def leave_part(site: Site, folder: Path, part: bytes, total: int) -> None:
    (folder / "data.bin.part").write_bytes(part)
    notes = {"url": site.url, "validator": '"one"', "total": total}
    (folder / "data.bin.part.json").write_text(json.dumps(notes))


def test_a_part_that_is_whole_needs_no_request(site: Site, tmp_path: Path) -> None:
    leave_part(site, tmp_path, BODY, len(BODY))
    get.get("omniglot", tmp_path)
    assert site.asked == []
    assert names(tmp_path) == {"data.bin"}


def test_a_part_that_is_too_long_is_thrown_away(site: Site, tmp_path: Path) -> None:
    leave_part(site, tmp_path, BODY + b"more", 0)  # the server answers 416
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY
    assert ["Range" in headers for headers in site.asked] == [True, False]


def test_a_server_need_not_say_how_long_a_file_is(site: Site, tmp_path: Path) -> None:
    site.chunked, site.cuts = True, [HALF]
    seen: list[tuple[int, int]] = []
    get.get("omniglot", tmp_path, lambda done, total: seen.append((done, total)))
    assert (tmp_path / "data.bin").read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert "Range" in site.asked[1]


def test_a_busy_server_is_asked_again(site: Site, tmp_path: Path) -> None:
    site.status = [503, 429]
    get.get("omniglot", tmp_path)
    assert len(site.asked) == 3
    site.status = [500] * 3
    with pytest.raises(DataError, match="the server answers 500 Internal Server Error"):
        get.get("omniglot", tmp_path / "other")


def test_pauses_grow(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr(get, "PAUSES", (1.0, 2.0, 4.0))
    site.status = [503] * 4
    with pytest.raises(DataError, match="stopped 4 times"):
        get.get("omniglot", tmp_path)
    assert slept == [1.0, 2.0, 4.0]


def test_a_wrong_checksum_leaves_nothing_behind(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "sha256:" + 64 * "0"
    offer(monkeypatch, Download(site.url, "data.bin", expected))
    found = site.checksum().removeprefix("sha256:")
    words = f"{re.escape(site.url)}: .*expected {expected} but got {found}.*Run the command again"
    with pytest.raises(DataError, match=words):
        get.get("omniglot", tmp_path)
    assert names(tmp_path) == set()


def test_a_file_that_is_gone_is_named(site: Site, tmp_path: Path) -> None:
    site.status = [404]
    with pytest.raises(DataError, match=f"{re.escape(site.url)}: the server answers 404 Not Found; .* by hand"):
        get.get("omniglot", tmp_path)
    assert len(site.asked) == 1
    assert names(tmp_path) == set()


def test_no_server_at_all(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Download("http://127.0.0.1:9/data.bin", "data.bin", None))
    with pytest.raises(DataError, match=r"stopped 3 times in a row.*check the network"):
        get.get("omniglot", tmp_path)
    offer(monkeypatch, Download("nowhere", "data.bin", None))
    with pytest.raises(DataError, match=r"nowhere: .*nothing can be fetched from there"):
        get.get("omniglot", tmp_path)


def test_a_file_without_a_checksum_says_so(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Download(site.url, "splits/list.txt", None))
    first, second = get.get("omniglot", tmp_path)[0], get.get("omniglot", tmp_path)[0]
    assert first.path == tmp_path / "splits" / "list.txt"
    assert first.note == "downloaded; unchecked: no checksum is published"
    assert second.note == "already there; unchecked: no checksum is published"
    assert first.checksum == second.checksum == site.checksum()
    assert len(site.asked) == 1


def tgz(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def damaged(archive: bytes) -> bytes:
    """Put noise in the middle of what is compressed."""
    middle = len(archive) // 2
    return archive[:middle] + Random(0).randbytes(1 << 14) + archive[middle + (1 << 14) :]


NUMBERS = b" ".join(b"%d" % n for n in range(100_000))


@pytest.fixture
def birds(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    site.body = tgz(("CUB/images/1.jpg", b"one"), ("CUB/classes.txt", b"1 bird"), ("attributes.txt", b"beak"))
    offer(monkeypatch, Download(site.url, "birds.tgz", site.checksum(), unpacks="CUB"), name="cub")
    return site


def test_an_archive_is_unpacked_once(birds: Site, tmp_path: Path) -> None:
    found = get.get("cub", tmp_path)
    assert [(file.path.name, file.note) for file in found] == [
        ("birds.tgz", "downloaded, as published"), ("CUB", "unpacked"),
    ]  # fmt: skip
    assert names(tmp_path) == {"birds.tgz", "CUB", "attributes.txt"}
    assert (tmp_path / "CUB" / "images" / "1.jpg").read_bytes() == b"one"
    (tmp_path / "birds.tgz").unlink()  # not needed any more
    assert [file.words() for file in get.get("cub", tmp_path)] == [f"{tmp_path / 'CUB'}: already there, unpacked"]
    assert len(birds.asked) == 1


def test_unpacking_that_was_killed_is_done_again(birds: Site, tmp_path: Path) -> None:
    folder = tmp_path / "cub"
    script = f"""
import os, tarfile
from pathlib import Path
from hyperproto.data import get
def die(tar, path, members, filter):
    tar.extract(next(iter(members)), path, filter=filter)
    os._exit(9)
tarfile.TarFile.extractall = die
get.DOWNLOADS["cub"] = (get.Download({birds.url!r}, "birds.tgz", {birds.checksum()!r}, unpacks="CUB"),)
get.get("cub", Path({str(folder)!r}))
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == 9
    assert (folder / ".CUB.unpacking" / "CUB" / "images" / "1.jpg").exists()
    (folder / ".CUB.unpacking" / "CUB" / "stale").touch()
    get.get("cub", folder)
    assert names(folder) == {"birds.tgz", "CUB", "attributes.txt"}
    assert names(folder / "CUB") == {"images", "classes.txt"}
    assert len(birds.asked) == 1


def test_unpacking_shows_progress(birds: Site, tmp_path: Path) -> None:
    (tmp_path / "birds.tgz").write_bytes(birds.body)
    seen: list[tuple[int, int]] = []
    get.get("cub", tmp_path, lambda done, total: seen.append((done, total)))
    assert len(seen) == 3
    assert all(0 < done <= total == len(birds.body) for done, total in seen)


def test_unpacking_replaces_no_file_of_the_user(birds: Site, tmp_path: Path) -> None:
    (tmp_path / "attributes.txt").write_bytes(b"mine")
    get.get("cub", tmp_path)
    assert (tmp_path / "attributes.txt").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (tgz(("../out.txt", b"out"), ("CUB/a", b"")), "outside the destination"),
        (tgz(("other/a", b"")), "holds no folder CUB"),
        (tgz(("CUB/a", os.urandom(1 << 16)))[: 1 << 15], "cannot be unpacked"),
        (damaged(tgz(("CUB/a", NUMBERS))), "cannot be unpacked"),
        (b"no archive", "cannot be unpacked .* remove it and run the command again"),
    ],
    ids=["leads out", "other folder", "cut", "damaged", "no archive"],
)
def test_an_archive_that_will_not_do(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, words: str
) -> None:
    site.body = body
    offer(monkeypatch, Download(site.url, "birds.tgz", site.checksum(), unpacks="CUB"), name="cub")
    folder = tmp_path / "cub"
    with pytest.raises(DataError, match=words):
        get.get("cub", folder)
    assert names(tmp_path) == {"cub"}
    assert names(folder) == {"birds.tgz"}


def test_names_that_have_nothing_to_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="there is no data set 'omniglott'; did you mean 'omniglot'"):
        get.get("omniglott", tmp_path)
    with pytest.raises(DataError, match="glyphs: nothing to download"):
        get.get("glyphs", tmp_path)
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    with pytest.raises(DataError) as caught:
        get.get("miniimagenet")
    for words in ("no official place", "ImageNet", str(tmp_path / "miniimagenet"), "train.csv", "images/", ".zip"):
        assert words in str(caught.value)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that may not be written to; root may write anywhere, so root becomes nobody for the test."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "omniglot").mkdir()
        (folder / "omniglot").chmod(0o555)
        folder.chmod(0o555)
        if root:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "why"),
    [("omniglot", "no right to write there"), ("cub", "Permission denied")],
    ids=["folder is there", "folder is not there"],
)
def test_a_folder_that_may_not_be_written_to(
    site: Site, read_only: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(read_only))
    with pytest.raises(
        DataError, match=rf"^{read_only / name}: {why}; check your rights .* --out FOLDER names another"
    ):
        get.get(name)
    assert site.asked == []


def test_a_file_where_the_folder_should_be(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file.*: .*--out FOLDER"):
        get.get("omniglot", tmp_path / "file")


def test_the_table_of_downloads() -> None:
    for name, downloads in get.DOWNLOADS.items():
        for entry in downloads:
            assert entry.url.startswith("https://")
            assert entry.checksum is not None or name == "intents" or entry.file.startswith("splits/vinyals/")
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", entry.checksum or "sha256:" + 64 * "0")
            assert bool(entry.unpacks) == entry.file.endswith(".tgz")
    assert {entry.file for entry in get.DOWNLOADS["omniglot"]} == {
        "images_background.zip", "images_evaluation.zip",
        "splits/vinyals/train.txt", "splits/vinyals/val.txt", "splits/vinyals/test.txt",
    }  # fmt: skip
    assert [entry.file for entry in get.DOWNLOADS["fewrel"]] == [
        f"{name}.json"
        for name in ("train_wiki", "val_wiki", "val_pubmed", "val_semeval", "pid2name", "pubmed_unsupervised")
    ]
    assert {entry.url.removesuffix(entry.file) for entry in get.DOWNLOADS["fewrel"]} == {
        "https://raw.githubusercontent.com/thunlp/FewRel/master/data/"
    }


def test_fewrel_is_downloaded_to_where_it_is_read_from(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    site.body = json.dumps({"P6": [{"tokens": ["a", "b"], "h": ["a", "", [[0]]], "t": ["b", "", [[1]]]}]}).encode()
    offer(monkeypatch, Download(site.url, "train_wiki.json", site.checksum()), name="fewrel")
    assert get.get("fewrel")[0].note == "downloaded, as published"
    assert open_pool(get.spec("fewrel"), "train").class_names == ("P6",)
    assert open_pool(get.spec("fewrel", tmp_path / "fewrel"), "train").class_names == ("P6",)
    with pytest.raises(DataError, match="fewrel2: nothing to download; hyperproto data list says what it is made from"):
        get.get("fewrel2")


def test_the_command(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path / "data"))
    result = CliRunner().invoke(cli.app, ["data", "get", "omniglot"], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"{tmp_path / 'data' / 'omniglot' / 'data.bin'}: downloaded, as published" in result.stdout
    assert result.stdout.endswith("use it with: --data omniglot\n")
    elsewhere = str(tmp_path / "my data")
    result = CliRunner().invoke(cli.app, ["data", "get", "omniglot", "--out", elsewhere], catch_exceptions=False)
    assert result.stdout.endswith(f"use it with: --data 'omniglot:{elsewhere}'\n")
    assert (tmp_path / "my data" / "data.bin").read_bytes() == BODY


def test_the_command_prints_a_mistake_as_one_paragraph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hyperproto", "data", "get", "miniimagenet"])
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    printed = capsys.readouterr()
    assert "error: miniimagenet: there is no official place" in " ".join(printed.err.split())
    assert printed.out == ""


@pytest.mark.parametrize(
    "notes",
    [
        "", "[]", "{", "[" * 100_000, '{"url": "URL"}', '{"url": "URL", "validator": 3, "total": 9}', "\xff",
        '{"url": "URL", "validator": "a\\nb: c", "total": 9}', '{"url": "URL", "validator": "x", "total": "9"}',
        '{"url": "URL", "validator": "x", "total": -9}', '{"url": "URL", "validator": "x", "total": 1e400}',
    ],
)  # fmt: skip
def test_damaged_notes_of_a_part_start_the_download_anew(site: Site, tmp_path: Path, notes: str) -> None:
    (tmp_path / "data.bin.part").write_bytes(b"what")
    (tmp_path / "data.bin.part.json").write_bytes(notes.replace("URL", site.url).encode("latin-1"))
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY
    assert site.asked == [{}]
    assert names(tmp_path) == {"data.bin"}


@pytest.mark.parametrize("length", ["", "-5", "many", "1" * 400])
def test_a_length_that_is_none_is_not_believed(site: Site, tmp_path: Path, length: str) -> None:
    site.length = length
    if length.startswith("1"):
        with pytest.raises(DataError, match=rf"{site.url}: stopped 3 times in a row .*bytes are kept in"):
            get.get("omniglot", tmp_path)
    else:
        assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY
        assert names(tmp_path) == {"data.bin"}


def test_a_body_that_is_longer_than_announced(site: Site, tmp_path: Path) -> None:
    site.cuts, site.surplus = [len(BODY) // 2], os.urandom(len(BODY) // 2)
    site.length = str(len(BODY))
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY
    assert [*map(len, site.asked)] == [0, 2, 0]  # from the start again, once the rest was too long
    assert names(tmp_path) == {"data.bin"}


def test_a_body_that_does_not_end(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Download(site.url, "data.bin", site.checksum(), len(BODY)))
    site.surplus, site.chunked = b"and more", True
    with pytest.raises(DataError, match=rf"more than the {len(BODY):,} bytes of the published file; the file"):
        get.get("omniglot", tmp_path)
    assert names(tmp_path) == set()


def test_a_server_that_stalls_is_asked_again(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get, "TIMEOUT", 0.2)
    site.stalls = [get._BLOCK + 1000]
    assert get.get("omniglot", tmp_path)[0].path.read_bytes() == BODY
    assert site.asked[1]["Range"] == f"bytes={get._BLOCK}-"
    (tmp_path / "data.bin").unlink()
    site.stalls = [0, 0, 0]
    with pytest.raises(DataError, match=r"stopped 3 times in a row .*check the network and run the command again"):
        get.get("omniglot", tmp_path)


def test_a_fifo_in_the_place_of_a_file_is_not_read(site: Site, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.bin")
    with pytest.raises(DataError, match=r"data\.bin: a FIFO, not a file"):
        get.get("omniglot", tmp_path)


def test_a_download_needs_no_torch() -> None:
    code = (
        "import sys, hyperproto.cli.commands, hyperproto.data.get, hyperproto.progress; print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
