"""Image sets in LMDB: an atomic writer, and readers that are safe with any kind of DataLoader worker.

Entries `00000000`, `00000001`, ... hold raw uint8 CHW pixels or JPEG bytes, `__targets__` the class of each
image as little-endian int32 where the set is labelled, and `__meta__` a JSON object that describes the set.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import torch
from torch.utils.data import Dataset

from eftgan.data.atomic_folder import atomic_folder
from eftgan.data.images import decode_rgb, encode_jpeg, fit_square, to_chw
from eftgan.data.spread import spread as spread
from eftgan.data.stores import (
    FORMAT,
    META,
    TARGETS,
    VERSION,
    entry_key,
    lmdb_folder,
    lsun_keys,
    read_meta,
    reading,
)
from eftgan.errors import UserError

ENCODINGS = ("raw", "jpeg")
_COMMIT_EVERY = 512

Sample = tuple[np.ndarray | bytes, int | None]


class Digest:
    """sha256 over what a reader sees: the layout, every entry in order, the targets."""

    def __init__(self, size: int, encoding: str, labels: list[str] | None):
        self._hash = hashlib.sha256(json.dumps([VERSION, size, encoding, labels]).encode())

    def add(self, content: bytes) -> None:
        self._hash.update(len(content).to_bytes(8, "little"))
        self._hash.update(content)

    def hex(self) -> str:
        return self._hash.hexdigest()


def write_lmdb(
    path: str | os.PathLike,
    samples: Iterable[Sample],
    *,
    size: int,
    encoding: str = "raw",
    labels: list[str] | None = None,
    source: str = "",
    total: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write (uint8 CHW array or encoded bytes, class index or None) pairs to a new set; return its meta.

    `total`, where given, is the number of samples that must come. Nothing is left at `path` on failure.
    """
    if encoding not in ENCODINGS:
        raise ValueError(f"encoding {encoding!r} is not one of {ENCODINGS}")
    with atomic_folder(path, overwrite=overwrite) as folder:
        try:
            meta = _write_store(folder, _encoded(samples, size, encoding), size, encoding, labels, source)
        except (lmdb.Error, OSError) as error:
            raise UserError(f"cannot write {path} ({error}); is the disk full?") from error
        if not meta["length"] or (total is not None and meta["length"] != total):
            raise UserError(f"{path}: {meta['length']} images to write, expected {total or 'at least one'}")
    return meta


def _write_store(folder: Path, pairs: Iterator, size: int, encoding: str, labels, source: str) -> dict[str, Any]:
    store = lmdb.open(str(folder), map_size=1 << 26, lock=False, sync=False)
    try:
        digest = Digest(size, encoding, labels)
        targets: list[int | None] = []
        for batch in _batches(pairs):
            first = len(targets)
            _put(store, [(entry_key(first + i), content) for i, (content, _) in enumerate(batch)])
            for content, target in batch:
                digest.add(content)
                targets.append(target)
        meta = _finish(store, digest, targets, size, encoding, labels, source)
        store.sync(True)
        return meta
    finally:
        store.close()


def _finish(store, digest, targets, size, encoding, labels, source) -> dict[str, Any]:
    entries = []
    if labels is not None:
        content = np.asarray(targets, dtype="<i4").tobytes()
        digest.add(content)
        entries.append((TARGETS, content))
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "length": len(targets),
        "size": size,
        "encoding": encoding,
        "labels": labels,
        "source": source,
        "digest": digest.hex(),
    }
    _put(store, [*entries, (META, json.dumps(meta, sort_keys=True).encode())])
    return meta


def _encoded(samples: Iterable[Sample], size: int, encoding: str) -> Iterator[tuple[bytes, int | None]]:
    for content, target in samples:
        if isinstance(content, np.ndarray):
            if content.shape != (3, size, size) or content.dtype != np.uint8:
                raise ValueError(f"expected uint8 (3, {size}, {size}), got {content.dtype} {content.shape}")
            content = content.tobytes() if encoding == "raw" else encode_jpeg(content)
        yield content, target


def _batches(pairs: Iterator) -> Iterator[list]:
    while batch := list(islice(pairs, _COMMIT_EVERY)):
        yield batch


def _put(store: lmdb.Environment, entries: list[tuple[bytes, bytes]]) -> None:
    """One transaction; the map is doubled and the transaction repeated where it does not fit."""
    while True:
        try:
            with store.begin(write=True) as transaction:
                for key, content in entries:
                    transaction.put(key, content)
            return
        except lmdb.MapFullError:
            store.set_mapsize(store.info()["map_size"] * 2)


class _StoredImages(Dataset):
    """What both readers share: one transaction a batch, and no open handle that a pickle would have to carry."""

    folder: Path
    size: int
    digest: str
    labels: list[str] | None = None
    targets: torch.Tensor | None = None

    def _key(self, index: int) -> bytes:
        raise NotImplementedError

    def _decode(self, content: bytes | memoryview) -> torch.Tensor:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        """The image, with its class index where the set is labelled."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list:
        with reading(self.folder, buffers=True) as transaction:
            return [self._item(transaction, int(index)) for index in indices]

    def _item(self, transaction: "lmdb.Transaction[Any]", index: int):
        if not -len(self) <= index < len(self):
            raise IndexError(f"image {index} of {len(self)} in {self.folder}")
        key = self._key(index % len(self))
        content = transaction.get(key)
        if content is None:
            raise UserError(f"{self.folder}: entry {key.decode()} is missing; make or fetch the set again")
        try:
            image = self._decode(content)
        except Exception as error:  # decoders raise whatever a damaged file makes of them
            raise UserError(
                f"{self.folder}: entry {key.decode()} is damaged ({error}); make or fetch the set again"
            ) from error
        return image if self.targets is None else (image, int(self.targets[index]))


class LmdbImages(_StoredImages):
    """A prepared set: uint8 (3, size, size) tensors, with the class index where the set is labelled."""

    def __init__(self, path: str | os.PathLike, *, limit: int | None = None):
        self.folder = lmdb_folder(path)
        meta = read_meta(self.folder)
        if meta is None:
            raise UserError(f"{self.folder} is in LSUN's own form; prepare it with: python -m data_prep lsun")
        self.meta = meta
        self.size, self.labels, self._encoding = meta["size"], meta["labels"], meta["encoding"]
        self._indices = spread(meta["length"], limit)
        cut = len(self._indices) < meta["length"]
        self.digest = f"{meta['digest']}/{len(self._indices)}" if cut else meta["digest"]
        if self.labels is not None:
            with reading(self.folder) as transaction:
                every = np.frombuffer(transaction.get(TARGETS, b""), dtype="<i4").astype(np.int64)
            if len(every) != meta["length"]:
                raise UserError(f"{self.folder}: {TARGETS.decode()} is damaged; make the set again")
            self.targets = torch.from_numpy(every[self._indices])

    def __len__(self) -> int:
        return len(self._indices)

    def _key(self, index: int) -> bytes:
        return entry_key(int(self._indices[index]))

    def _decode(self, content: bytes | memoryview) -> torch.Tensor:
        if self._encoding == "jpeg":
            pixels = to_chw(decode_rgb(bytes(content)))
        else:
            pixels = np.frombuffer(content, dtype=np.uint8).copy()
        return torch.from_numpy(pixels).reshape(3, self.size, self.size)


class LsunImages(_StoredImages):
    """LSUN's own LMDB (key -> WebP or JPEG bytes), each image fitted to `size` when it is read."""

    def __init__(self, path: str | os.PathLike, *, size: int, limit: int | None = None):
        self.folder = lmdb_folder(path)
        self.size = size
        keys = lsun_keys(self.folder)
        self._keys = [keys[i] for i in spread(len(keys), limit)]
        self.digest = hashlib.sha256(repr((size, self._keys)).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self._keys)

    def _key(self, index: int) -> bytes:
        return self._keys[index]

    def _decode(self, content: bytes | memoryview) -> torch.Tensor:
        return torch.from_numpy(to_chw(fit_square(decode_rgb(bytes(content)), self.size)))
