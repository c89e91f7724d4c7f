"""A gzip file read by offset, in place: what zlib knows at places along the way is kept, and reading starts there."""

import bisect
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

GZIP = b"\x1f\x8b"  # how such a file begins
_IN, _OUT = 1 << 16, 1 << 18  # bytes read, and unpacked at most, in one go
_SPACING = 1 << 20  # unpacked bytes between two places, at first
_MOST_PLACES = 1024  # some 40 kB each
_MAX_RATIO, _HARMLESS = 100, 1 << 30  # pictures hardly shrink: what grows so far beyond a gigabyte is none


class _Piece(NamedTuple):
    """Some unpacked bytes, and all that it takes to unpack the next ones."""

    start: int  # unpacked bytes before it
    content: bytes
    packed: int  # packed bytes used so far
    state: Any  # zlib's behind it; unpacking further uses it up, and it cannot be pickled

    @property
    def end(self) -> int:
        return self.start + len(self.content)

    def kept(self) -> "_Piece":
        """The place behind it, for later."""
        return _Piece(self.end, b"", self.packed, self.state.copy())


class PackedFile:
    """The unpacked bytes of a gzip file. Places are noted as far as it was read, so read it once from end to end.

    It may be shared with forked workers, and pickled: then it starts anew.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._limit = max(_HARMLESS, _MAX_RATIO * path.stat().st_size)
        self._spacing, self._places = _SPACING, [_Piece(0, b"", 0, _fresh())]
        self._last: _Piece | None = None  # where the last reading ended
        self._handle: tuple[int, BinaryIO] | None = None  # of one process: a shared one would share the position

    def __reduce__(self) -> tuple[type, tuple[Path]]:
        return PackedFile, (self.path,)

    def read_at(self, offset: int, size: int) -> bytes:
        """`size` unpacked bytes from `offset` on; fewer at the end."""
        piece, self._last = self._nearest(offset), None
        parts = [piece.content[offset - piece.start : offset - piece.start + size]]
        while piece.end < offset + size:
            piece = _next(self._own_handle(), piece)
            if not piece.content:
                break
            self._note(piece)
            parts.append(piece.content[max(0, offset - piece.start) : max(0, offset - piece.start + size)])
        self._last = piece
        return b"".join(parts)

    def _nearest(self, offset: int) -> _Piece:
        """Where to start for `offset`: where the last reading ended, or at the last place before it."""
        kept = self._places[bisect.bisect_right(self._places, offset, key=lambda place: place.start) - 1]
        if self._last is not None and kept.start <= self._last.end and self._last.start <= offset:
            return self._last
        return kept.kept()

    def _note(self, piece: _Piece) -> None:
        if piece.end > self._limit:
            raise ValueError(f"it unpacks to more than {_MAX_RATIO} times its size, as pictures never do")
        if piece.end - self._places[-1].start >= self._spacing and not piece.state.eof:
            self._places.append(piece.kept())
        if len(self._places) > _MOST_PLACES:
            self._places, self._spacing = self._places[::2], self._spacing * 2

    def _own_handle(self) -> BinaryIO:
        if self._handle is None or self._handle[0] != os.getpid():
            self._handle = (os.getpid(), open(self.path, "rb"))  # noqa: SIM115
        return self._handle[1]


class FromTheBeginning:
    """Reads on from where the last call ended: what tarfile wants of a stream."""

    def __init__(self, file: PackedFile) -> None:
        self.file, self.position = file, 0

    def read(self, size: int) -> bytes:
        content = self.file.read_at(self.position, size)
        self.position += len(content)
        return content


def _fresh() -> Any:
    return zlib.decompressobj(wbits=31)


def _next(handle: BinaryIO, piece: _Piece) -> _Piece:
    """The bytes behind a piece; none at the end."""
    packed, state = piece.packed, piece.state
    while True:
        handle.seek(packed)
        chunk = handle.read(_IN)
        if state.eof:  # one packed stream may follow another, and zeros may fill the end
            if not chunk.strip(b"\0"):
                return _Piece(piece.end, b"", packed, state)
            packed += len(chunk) - len(chunk.lstrip(b"\0"))
            state = _fresh()
            continue
        if not chunk:
            raise EOFError("the file ends before its content does")
        content = state.decompress(chunk, _OUT)
        packed += len(chunk) - len(state.unconsumed_tail) - len(state.unused_data)
        if content:
            return _Piece(piece.end, content, packed, state)
