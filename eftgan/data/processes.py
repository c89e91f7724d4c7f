"""The processes that compute together, on one host or several: what they tell each other."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import distributed

from eftgan.errors import UserError

Content = TypeVar("Content")


class OutOfStep(UserError):
    """A mistake in the middle of common work: it cannot be passed over, since the others are elsewhere by now."""


@dataclass(frozen=True)
class Processes:
    """How many there are, and which of them this one is. One alone needs no launcher."""

    rank: int = 0
    count: int = 1

    @classmethod
    def present(cls) -> "Processes":
        """Those that a launcher has started and that have met."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def exchange(self, content: Content) -> list[Content]:
        """What each process brings, in the order of their ranks; all of them must call it."""
        if self.count == 1:
            return [content]
        found: list[Any] = [None] * self.count
        distributed.all_gather_object(found, content)
        return found

    def tell(self, content: Content | None = None) -> Content:
        """What the first process says; what the others bring does not count."""
        said: list[Any] = [content]
        if self.count > 1:
            distributed.broadcast_object_list(said, src=0)
        return said[0]

    @contextlib.contextmanager
    def agreeing(self) -> Iterator[None]:
        """A mistake that one process finds inside the block ends all of them: none waits for one that is gone."""
        own: UserError | OSError | None = None
        try:
            yield
        except (UserError, OSError) as error:
            if self.count == 1:
                raise
            own = error
        found = self.exchange(None if own is None else f"process {self.rank} on {socket.gethostname()}: {own}")
        if own is not None:
            raise own
        for message in found:
            if message is not None:
                raise UserError(message)


ALONE = Processes()
