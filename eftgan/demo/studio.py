"""The pictures of a page: drawn one at a time, whoever asks, and kept for a while."""

import functools
import threading
from dataclasses import dataclass

from torch import Tensor

from eftgan.adapters.mixing import require_numbers
from eftgan.data.animation import encode_animation
from eftgan.data.grid import encode_png, tile
from eftgan.errors import UserError
from eftgan.gan.latent import Subject, draw_frames, of_task, owned_parts
from eftgan.gan.run import GanRun

KEPT = 256  # pictures, a few kilobytes each


@dataclass(frozen=True)
class Order:
    """What is to be drawn besides the subject."""

    count: int
    seed: int
    truncation: float | None = None


class Studio:
    """Draws for one run. Its methods may be called from several threads."""

    def __init__(self, run: GanRun) -> None:
        self.run = run
        self.tasks = run.trained
        self._lock = threading.Lock()
        self._task_picture = functools.lru_cache(maxsize=KEPT)(self._draw_task)

    @functools.cached_property
    def mixable(self) -> bool:
        """Whether tasks have a strength and can be mixed."""
        try:
            owned_parts(self.run)
            with self._lock:
                require_numbers(self.run.generator(self._last))
        except UserError:
            return False
        return True

    def known(self, task: str) -> str:
        """The task, or the first one where the run has none of that name: what was chosen may be another run's."""
        return task if task in self.tasks else self.tasks[0]

    @property
    def _last(self) -> int:
        return len(self.tasks) - 1

    def frames(self, subject: Subject, order: Order, steps: int | None = None, after: int | None = None) -> Tensor:
        """Images (frames, count, 3, S, S) by the run as it is now, or as it was after a task."""
        with self._lock:
            generator = self.run.generator(self._last if after is None else after)
            draw = functools.partial(draw_frames, truncation=order.truncation, steps=steps, show=False)
            return draw(self.run, generator, subject, order.count, order.seed)

    def grid(self, subject: Subject, order: Order) -> bytes:
        """A still picture, as a PNG."""
        return encode_png(tile(self.frames(subject, order)[0], columns_for(order.count)))

    def way(self, subject: Subject, order: Order, steps: int) -> tuple[bytes, bytes]:
        """A way as an animated WebP, and side by side as a PNG."""
        frames = self.frames(subject, order, steps)
        animation = encode_animation([tile(frame, columns_for(order.count)) for frame in frames], ".webp")
        return animation, encode_png(tile(frames.transpose(0, 1).flatten(0, 1), len(frames)))

    def has_task_file(self, index: int) -> bool:
        """Whether the run can still be drawn as it was after this task."""
        return self.run.folder.task_file(index, self.tasks[index]).is_file()

    def task_after(self, task: str, after: int, order: Order) -> bytes:
        """A task as it was after another, as a PNG; a task that is kept to the bit is drawn once for all."""
        learned = self.tasks.index(task)
        return self._task_picture(task, learned if self.run.keeps_tasks else after, order)

    def _draw_task(self, task: str, after: int, order: Order) -> bytes:
        frames = self.frames(of_task(task), order, after=after)
        return encode_png(tile(frames[0], columns_for(order.count)))


def columns_for(count: int) -> int:
    """A grid about as wide as high, four to eight images wide."""
    return min(count, 4 if count <= 16 else 8)
