"""`hyperproto data get`: resumable downloads of data sets from their official places, with published checksums."""

import errno
import json
import os
import re
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pooch
import requests

from hyperproto.data import DATASETS
from hyperproto.data.image_benchmarks import LAYOUTS
from hyperproto.data.pool import Progress
from hyperproto.data.specs import data_folder
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import atomic_write, open_file, os_problem, read_json


@dataclass(frozen=True)
class Download:
    """A file to fetch."""

    url: str
    file: str  # where it goes, below the folder of the data set
    checksum: str | None  # "sha256:..." or "md5:..."; None where none is published
    size: int = 0  # bytes; 0 if unknown
    unpacks: str = ""  # for a .tgz: the folder that it holds


_OMNIGLOT = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"
_FEWREL = "https://raw.githubusercontent.com/thunlp/FewRel/master/data"
_CLINC = "https://raw.githubusercontent.com/clinc/oos-eval/master/data"
_BANKING = "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data"
_HWU = "https://raw.githubusercontent.com/jianguoz/Few-Shot-Intent-Detection/main/Datasets/HWU64"
_VINYALS = "https://raw.githubusercontent.com/jakesnell/prototypical-networks/master/data/omniglot/splits/vinyals"

# Checksums and sizes as TensorFlow Datasets publishes them for the same files (torchvision and CaltechDATA have MD5);
# those of FewRel as Hugging Face's datasets do (datasets/few_rel/dataset_infos.json).
DOWNLOADS: dict[str, tuple[Download, ...]] = {
    "omniglot": (
        Download(
            f"{_OMNIGLOT}/images_background.zip",
            "images_background.zip",
            "sha256:ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            9_464_212,
        ),
        Download(
            f"{_OMNIGLOT}/images_evaluation.zip",
            "images_evaluation.zip",
            "sha256:1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            6_462_886,
        ),
        *(
            Download(f"{_VINYALS}/{split}.txt", f"splits/vinyals/{split}.txt", None)
            for split in ("train", "val", "test")
        ),
    ),
    "cub": (
        Download(
            "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            "CUB_200_2011.tgz",
            "sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
            1_150_585_339,
            unpacks="CUB_200_2011",
        ),
    ),
    "fewrel": tuple(
        Download(f"{_FEWREL}/{name}.json", f"{name}.json", f"sha256:{digest}", size)
        for name, digest, size in (
            ("train_wiki", "8e9e58a05d559be773cbe18a8d4a16ba17e6d397663f9f05a056f894a94b92c1", 14_298_985),
            ("val_wiki", "76bb44c2485b6faed358a3ce040eadafcc8a8835245cd7e6afc1bef672d4a0bf", 3_534_147),
            ("val_pubmed", "fc0f13b534f6664fe0d8aec231d7590313bc6510d00dbc1b6746147f6a2b46e6", 432_600),
            ("val_semeval", "fd79cf35481f6596c23b92cd3ded3265481f3027a4b78d99921104f8fe632eb5", 2_203_006),
            ("pid2name", "eeedd25512a8e4c2bc06b78009836d27de81807bcba6ed929debd5cd713c07ea", 80_278),
            ("pubmed_unsupervised", "fa3555941364024c2ac1b1857396515ecc65a515bc742e9da0502568fad5dd1f", 1_093_301),
        )
    ),
    "intents": (
        Download(f"{_CLINC}/data_full.json", "clinc150.json", None),
        *(Download(f"{_BANKING}/{split}.csv", f"banking77/{split}.csv", None) for split in ("train", "test")),
        *(
            Download(f"{_HWU}/{split}/{file}", f"hwu64/{split}/{file}", None)
            for split in ("train", "valid", "test")
            for file in ("seq.in", "label")
        ),
    ),
}

_NO_PLACE = f"it is not fetched here: get its files from its authors' pages, and put into {{folder}} {LAYOUTS}"
NOT_PUBLIC = {
    "cifar-fs": _NO_PLACE,
    "fc100": _NO_PLACE,
    "tieredimagenet": _NO_PLACE,
    "miniimagenet": (
        "there is no official place to download it from: its images are ImageNet's, whose terms forbid passing on. "
        "Get the images under those terms, and put into {folder} the lists of Ravi & Larochelle (train.csv, val.csv, "
        "test.csv: filename,label) and, beside them, a folder images/ with the images; or all of that in one .zip"
    ),
}


@dataclass(frozen=True)
class Fetched:
    """A file, or an unpacked folder, that is now there."""

    path: Path
    checksum: str
    note: str

    def words(self) -> str:
        """Return one line: the path, its checksum and how it got there."""
        return f"{self.path}: {self.note}" + (f" ({self.checksum})" if self.checksum else "")


def get(name: str, folder: Path | None = None, progress: Progress | None = None) -> list[Fetched]:
    """Download what is not there yet of the data set `name`; `progress` counts the bytes of one file after another."""
    if name not in DATASETS.names():
        raise ConfigError(unknown_name("data set", name, DATASETS.names()))
    target = data_folder(name) if folder is None else folder.expanduser()
    if name in NOT_PUBLIC:
        raise DataError(f"{name}: {NOT_PUBLIC[name].format(folder=target)}")
    if name not in DOWNLOADS:
        raise DataError(f"{name}: nothing to download; hyperproto data list says what it is made from")
    pooch.get_logger().setLevel("WARNING")  # we say ourselves what happens
    try:
        return [found for download in DOWNLOADS[name] for found in _get(download, target, progress)]
    except OSError as error:
        raise DataError(f"{os_problem(error, str(target))}; --out FOLDER names another folder") from None


def spec(name: str, folder: Path | None = None) -> str:
    """Return the data spec of what `get` left in `folder`."""
    return name if folder is None else f"{name}:{folder}"


def _get(download: Download, folder: Path, progress: Progress | None) -> Iterator[Fetched]:
    unpacked = folder / download.unpacks
    if download.unpacks and unpacked.exists():  # the archive may be gone: it is not needed any more
        yield Fetched(unpacked, "", "already there, unpacked")
        return
    path = folder / download.file
    yield _check(path, download) if path.exists() else _fetch(path, download, progress)
    if download.unpacks:
        _unpack(path, unpacked, progress)
        yield Fetched(unpacked, "", "unpacked")


def _check(path: Path, download: Download) -> Fetched:
    """Compare a file that exists with the published checksum; a different file is refused, never replaced."""
    open_file(path).close()  # or say that it is none
    found = _checksum(path, download)
    if download.checksum is None:
        return Fetched(path, found, "already there; unchecked: no checksum is published")
    if found != download.checksum:
        raise DataError(
            f"{path}: this file is not the published one (its checksum is {found}, it should be {download.checksum}); "
            "move it away to download that, or name another folder with --out FOLDER"
        )
    return Fetched(path, found, "already there, as published")


def _fetch(path: Path, download: Download, progress: Progress | None) -> Fetched:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, "no right to write there", str(path.parent))
    downloader = ResumingDownloader(path, download.size, progress)
    try:
        pooch.retrieve(download.url, download.checksum, path.name, path.parent, downloader=downloader)
    except ValueError as error:  # pooch's word for a wrong checksum; it has deleted what came, and `path` is untouched
        raise DataError(
            f"{download.url}: {error} Run the command again; if the same comes twice, the file was changed there: "
            "tell the authors of hyperproto"
        ) from None
    if download.checksum is None:
        return Fetched(path, _checksum(path, download), "downloaded; unchecked: no checksum is published")
    return Fetched(path, download.checksum, "downloaded, as published")


def _checksum(path: Path, download: Download) -> str:
    algorithm = (download.checksum or "sha256:").partition(":")[0]
    return f"{algorithm}:{pooch.file_hash(str(path), alg=algorithm)}"


def _unpack(archive: Path, folder: Path, progress: Progress | None) -> None:
    """Unpack a .tgz into a draft folder, then rename it to `folder`, so that a killed call starts again."""
    if not hasattr(tarfile, "data_filter"):
        raise DataError(f"{archive}: this Python cannot unpack safely; take 3.11.4 or newer, or unpack it by hand")
    draft = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        with archive.open("rb") as file, tarfile.open(fileobj=file, mode="r:gz") as tar:
            members = _watched(tar, file, archive.stat().st_size, progress)
            tar.extractall(draft, members=members, filter="data")  # refuses paths and links that lead out of the draft
        if not (draft / folder.name).is_dir():
            raise DataError(f"{archive}: it holds no folder {folder.name}")
        for other in draft.iterdir():
            if other.name != folder.name and not (folder.parent / other.name).exists():
                other.rename(folder.parent / other.name)
        (draft / folder.name).rename(folder)
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise DataError(f"{archive}: it cannot be unpacked ({error}); remove it and run the command again") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _watched(tar: tarfile.TarFile, file: IO[bytes], size: int, progress: Progress | None) -> Iterator[tarfile.TarInfo]:
    for member in tar:
        if progress is not None:
            progress(file.tell(), size)
        yield member


PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds before each new try; bytes that arrive in between start the count anew
TIMEOUT = 30.0  # seconds without a byte
_BLOCK = 1 << 16  # bytes written at a time: what a cut can lose
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


class Cut(Exception):  # noqa: N818 - it is not the user's error, and another try may well do
    """The download stopped before its end."""


@dataclass(frozen=True)
class ResumingDownloader:
    """Resumable downloader for pooch, which then checks the file and moves it to `target`."""

    target: Path
    size: int = 0  # bytes, for the progress where a server does not say; 0 if unknown
    progress: Progress | None = None

    def __call__(self, url: str, output_file: str, pooch: object = None) -> None:
        """Fetch `url` into `output_file`; after an interruption, the next call continues with the bytes received."""
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
                        self._check_length(part, file.tell())
                        if self.progress is not None:
                            self.progress(file.tell(), part.total or self.size or file.tell())
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            raise Cut(str(error)) from None
        except requests.RequestException as error:
            raise DataError(f"{part.url}: {error}; nothing can be fetched from there") from None
        if part.total and part.size != part.total:
            raise Cut(f"{part.size:,} bytes where {part.total:,} were announced")

    def _check_length(self, part: "Part", length: int) -> None:
        """Raise if more bytes arrive than the file can have."""
        if part.total and length > part.total:
            part.discard()
            raise Cut(f"more than the {part.total:,} bytes that were announced")
        if self.size and length > self.size:
            part.discard()
            raise DataError(
                f"{part.url}: more than the {self.size:,} bytes of the published file; the file was changed there: "
                "tell the authors of hyperproto"
            )


class Part:
    """Partial download: the bytes received (`NAME.part`) and the identity of their file (`NAME.part.json`)."""

    def __init__(self, target: Path, url: str) -> None:
        self.url = url
        self.path = target.with_name(f"{target.name}.part")
        self._notes = target.with_name(f"{target.name}.part.json")
        self.validator = ""  # the ETag, or the date, of the file: what tells two versions of it apart
        self.total = 0  # bytes of the whole file; 0 if the server did not say
        if not self._notes.exists():
            return
        with suppress(DataError):  # what they say cannot be known any more, so the download starts anew
            notes = read_json(self._notes)
            if _are_notes(notes) and notes["url"] == url:
                self.validator, self.total = notes["validator"], notes["total"]

    @property
    def size(self) -> int:
        """Number of bytes received."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def is_whole(self) -> bool:
        """Return whether all bytes were received by a call that was killed before it moved the file."""
        return 0 < self.total == self.size

    @property
    def headers(self) -> dict[str, str]:
        """Request headers for the remaining bytes; empty without a validator, which identifies the file."""
        if not self.size or not self.validator:
            return {}
        weak = self.validator.startswith("W/")  # not allowed in If-Range; `accept` compares it instead
        return {"Range": f"bytes={self.size}-"} | ({} if weak else {"If-Range": self.validator})

    def accept(self, response: requests.Response) -> None:
        """Prepare for the body of `response`: continue, or start again; raise if the response has no usable body."""
        status = f"{response.status_code} {response.reason}"
        if response.status_code == requests.codes.partial_content:
            if not self._continues(response):
                self.discard()
                raise Cut("the file has changed on the server")
        elif response.status_code == requests.codes.requested_range_not_satisfiable:
            self.discard()
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
        """Move the bytes to `output_file`."""
        with self.path.open("ab") as file:
            os.fsync(file.fileno())
        self.path.replace(output_file)
        self._notes.unlink(missing_ok=True)

    def words(self) -> str:
        """Return how much was received, and what to do."""
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
        self.discard()  # first the old bytes go, then the new notes come: a kill in between can mix no two files
        if response.headers.get("Content-Encoding", "identity") == "identity":  # else neither is of what is written
            self.validator = _validator(response)
            self.total = _length(response)
        notes = {"url": self.url, "validator": self.validator, "total": self.total}
        with atomic_write(self._notes) as file:
            file.write(json.dumps(notes).encode())

    def discard(self) -> None:
        """Delete the bytes received."""
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)
        self.validator, self.total = "", 0


def _are_notes(notes: Any) -> bool:
    """Return whether `notes` have the form that `Part` writes; damaged ones do not."""
    if not isinstance(notes, dict) or not isinstance(notes.get("url"), str):
        return False
    validator, total = notes.get("validator"), notes.get("total")
    return isinstance(validator, str) and validator.isprintable() and type(total) is int and total >= 0


def _length(response: requests.Response) -> int:
    """Return the Content-Length of a response; 0 if it is missing or not a number."""
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else 0


def _validator(response: requests.Response) -> str:
    return response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
