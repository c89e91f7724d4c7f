"""A tree of files, whether it lies in a folder, a tar (packed by gzip or not) or a zip: sorted names and bytes."""

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from eftgan.data.images import is_image_name
from eftgan.data.packed import GZIP, FromTheBeginning, PackedFile
from eftgan.errors import UserError

MAX_FILE_BYTES = 1 << 28  # a packed file may say what it likes of its size
TARS = (".tar", ".tar.gz", ".tgz")
UNREAL = ("/proc/", "/sys/")  # not files, and without end


class Tree:
    """Sorted relative names in `names`, content by `read`. Can be pickled and shared with forked workers."""

    def __init__(self, path: Path, names: Sequence[str]):
        self.path = path
        self.names = sorted(names)
        self._known = frozenset(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def read(self, name: str) -> bytes:
        """The content of one file of the tree, and of no other: lists in the data may name what they like."""
        if name not in self:
            raise FileNotFoundError(f"{name} is not in {self.path}")
        facts = (self.path / name).stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size == 0:  # to read a pipe, or of /proc, may never end
            raise ValueError("it is empty, or not a file")
        if facts.st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has {facts.st_size} bytes, more than any image here may have ({MAX_FILE_BYTES})")
        return (self.path / name).read_bytes()

    def size_of(self, name: str) -> int:
        """Bytes of one file, without reading it; 0 where it cannot be told."""
        try:
            return (self.path / name).stat().st_size
        except OSError:
            return 0

    def text(self, name: str) -> str:
        """The content of one text file; a UserError that names it where it is missing."""
        if name not in self:
            raise UserError(f"{self.path} has no {name}; see `python -m data_prep --help` for the expected layout")
        try:
            return self.read(name).decode("utf-8")
        except (UnicodeDecodeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(f"{self.path}: {name} cannot be read as text ({error})") from error

    def images(self, under: str = "") -> list[str]:
        """The names of all images whose name starts with `under`."""
        return [name for name in self.names if name.startswith(under) and is_image_name(name)]

    def top(self) -> str:
        """'name/' where everything lies in one folder of that name with further folders in it, else ''."""
        tops = {name.split("/", 2)[0] if name.count("/") > 1 else "" for name in self.images()}
        return f"{tops.pop()}/" if len(tops) == 1 and "" not in tops else ""

    def prefix_of(self, name: str) -> str:
        """'' where `name` (a file, or a folder ending in /) lies at the top, 'top/' where it lies one below."""
        match = str.startswith if name.endswith("/") else str.__eq__
        tops = {other.partition("/")[0] + "/" for other in self.names if match(other.partition("/")[2], name)}
        if any(match(other, name) for other in self.names):
            return ""
        if not tops:
            raise UserError(f"{self.path} has no {name}; see `python -m data_prep --help` for the expected layout")
        return min(tops)


class TarTree(Tree):
    """A tar, read by offset; one that gzip packed is unpacked once to find its files, and read in place."""

    def __init__(self, path: Path):
        self._packed = PackedFile(path) if _begins_with(path, GZIP) else None
        try:
            self._spans = _spans(path, self._packed)
        except (tarfile.TarError, ValueError, OverflowError, EOFError, zlib.error) as error:
            kind = "a tar, plain or packed by gzip" if self._packed is None else "a tar packed by gzip"
            raise UserError(f"{path} cannot be read as {kind} ({error}); fetch it again") from error
        super().__init__(path, list(self._spans))

    def size_of(self, name: str) -> int:
        return self._spans[name][1]

    def read(self, name: str) -> bytes:
        if name not in self:
            raise FileNotFoundError(f"{name} is not in {self.path}")
        offset, size = self._spans[name]
        if size > MAX_FILE_BYTES:
            raise ValueError(f"it has {size} bytes, more than any image here may have ({MAX_FILE_BYTES})")
        if self._packed is not None:
            content = self._packed.read_at(offset, size)
        else:
            with open(self.path, "rb") as handle:
                handle.seek(offset)
                content = handle.read(size)
        if len(content) < size:
            raise EOFError("the archive ends inside this file")
        return content


def _spans(path: Path, packed: PackedFile | None) -> dict[str, tuple[int, int]]:
    """Offset and size of every file in a tar."""
    if packed is None:
        opened = tarfile.open(path, "r:")  # noqa: SIM115  # closed below
    else:
        stream = FromTheBeginning(packed)
        opened = tarfile.open(fileobj=stream, mode="r|")  # type: ignore[call-overload]  # noqa: SIM115  # it only reads
    with opened as archive:
        found = {
            member.name.removeprefix("./"): (member.offset_data, member.size) for member in archive if member.isfile()
        }
    if packed is not None:
        while stream.read(1 << 20):  # to the end, where the checksum is
            pass
    return found


def _begins_with(path: Path, magic: bytes) -> bool:
    with open(path, "rb") as handle:
        return handle.read(len(magic)) == magic


class ZipTree(Tree):
    """A zip; each process opens its own handle, because a shared one would share the file position."""

    def __init__(self, path: Path):
        try:
            with zipfile.ZipFile(path) as archive:
                self._sizes = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise UserError(f"{path} is not a whole zip file ({error}); fetch it again") from error
        super().__init__(path, list(self._sizes))
        self._handle: tuple[int, zipfile.ZipFile] | None = None

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_handle": None}

    def size_of(self, name: str) -> int:
        return self._sizes[name]

    def read(self, name: str) -> bytes:
        if self._handle is None or self._handle[0] != os.getpid():
            self._handle = (os.getpid(), zipfile.ZipFile(self.path))
        size = self._handle[1].getinfo(name).file_size
        if size > MAX_FILE_BYTES:
            raise ValueError(f"it unpacks to {size} bytes, more than any image here may have ({MAX_FILE_BYTES})")
        return self._handle[1].read(name)


def is_archive_name(name: str) -> bool:
    """Whether a file name is that of an archive that can be read here."""
    return name.lower().endswith((".zip", *TARS))


def open_tree(path: str | os.PathLike) -> Tree:
    """Open a folder, a tar (also .tar.gz) or a zip."""
    path = Path(path).expanduser()
    if path.is_dir():
        return Tree(path, _walk(path))
    if not path.is_file():
        raise UserError(f"no folder, tar or zip at {path}; check the path")
    if zipfile.is_zipfile(path) or path.suffix.lower() == ".zip":
        return ZipTree(path)
    if path.name.lower().endswith(TARS):
        return TarTree(path)
    raise UserError(f"{path} is not a folder, a .tar, .tar.gz or .zip; unpack it and give the folder")


def _walk(root: Path) -> list[str]:
    names, seen = [], set()
    for folder, subfolders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen or f"{real}/".startswith(UNREAL):  # a link that leads back, or out of the files
            subfolders.clear()
            continue
        seen.add(real)
        subfolders.sort()
        relative = Path(folder).relative_to(root).as_posix()
        names += files if relative == "." else [f"{relative}/{name}" for name in files]
    return names


def class_folders(tree: Tree, under: str = "") -> tuple[list[str], list[tuple[str, int]]]:
    """Class names in order, and (image name, class index): the first folder below `under` is the class."""
    names = tree.images(under)
    if not names:
        raise UserError(f"no images under {tree.path}/{under}; expected {under}<class>/<image>")
    flat = [name for name in names if "/" not in name[len(under) :]]
    if flat:
        raise UserError(f"{tree.path}: {flat[0]} lies in no class folder; expected {under}<class>/<image>")
    folders = [name[len(under) :].split("/", 1)[0] for name in names]
    classes = sorted(set(folders))
    index = {name: i for i, name in enumerate(classes)}
    return classes, [(name, index[folder]) for name, folder in zip(names, folders, strict=True)]
