"""`hyperproto data get`: data sets from their official places, checked against published checksums."""

import errno
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pooch

from hyperproto.data import DATASETS
from hyperproto.data.download import ResumingDownloader
from hyperproto.data.places import data_folder
from hyperproto.data.pool import Progress
from hyperproto.errors import ConfigError, DataError, unknown_name


@dataclass(frozen=True)
class Download:
    """A file to fetch."""

    url: str
    file: str  # where it goes, below the folder of the data set
    checksum: str | None  # "sha256:..." or "md5:..."; None where nobody publishes one
    size: int = 0  # bytes; 0 if unknown
    unpacks: str = ""  # for a .tgz: the folder that it holds


_OMNIGLOT = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"
_FEWREL = "https://raw.githubusercontent.com/thunlp/FewRel/master/data"
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
}

NOT_PUBLIC = {
    "miniimagenet": (
        "there is no official place to download it from: its images are ImageNet's, whose terms forbid passing on. "
        "Get the images under those terms, and put into {folder} the lists of Ravi & Larochelle (train.csv, val.csv, "
        "test.csv: filename,label) and, beside them, a folder images/ with the images; or all of that in one .zip"
    )
}


@dataclass(frozen=True)
class Fetched:
    """A file, or an unpacked folder, that is now there."""

    path: Path
    checksum: str
    note: str

    def words(self) -> str:
        """Say in one line what is there, and what is known of it."""
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
        where, why = error.filename or target, error.strerror or error
        raise DataError(
            f"{where}: {why}; name a folder that you may write to, on a disk with room, with --out FOLDER"
        ) from None


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
    """Look at a file that is already there. One that is not the published file is the user's: it is never replaced."""
    found = _checksum(path, download)
    if download.checksum is None:
        return Fetched(path, found, "already there; unchecked, as nobody publishes a checksum")
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
        return Fetched(path, _checksum(path, download), "downloaded; unchecked, as nobody publishes a checksum")
    return Fetched(path, download.checksum, "downloaded, as published")


def _checksum(path: Path, download: Download) -> str:
    algorithm = (download.checksum or "sha256:").partition(":")[0]
    return f"{algorithm}:{pooch.file_hash(str(path), alg=algorithm)}"


def _unpack(archive: Path, folder: Path, progress: Progress | None) -> None:
    """Unpack a .tgz; `folder` appears last and at once, so what a kill left unfinished is done again."""
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
