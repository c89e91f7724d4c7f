"""Built-in pictures: four unlike distributions drawn by code, and a labelled set for classification."""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from eftgan.data.streams import stream
from eftgan.errors import UserError

SHAPES = ("discs", "stripes", "triangles", "checks")
_DRAWING = 1  # counts up when the drawing changes, so that digests change with it

Field = torch.Tensor  # (N, S, S), or (N, 1, 1) where it broadcasts


def is_shapes(data: str) -> bool:
    """Whether `data` means built-in pictures: `shapes`, or `shapes:` and which of them."""
    return data == "shapes" or data.startswith("shapes:")


class Canvas:
    """Pixel coordinates in units of the image side, the centre at 0, and random numbers per image."""

    def __init__(self, count: int, size: int, generator: torch.Generator):
        self.count, self.size, self._generator = count, size, generator
        axis = (torch.arange(size, dtype=torch.float32) + 0.5) / size - 0.5
        self.x, self.y = axis.view(1, 1, size), axis.view(1, size, 1)

    def uniform(self, low: float, high: float) -> Field:
        return low + (high - low) * torch.rand(self.count, 1, 1, generator=self._generator)

    def choice(self, rows: Sequence[Sequence[float]]) -> torch.Tensor:
        """One row per image: (N, C, 1, 1), e.g. a colour of a palette."""
        picked = torch.randint(len(rows), (self.count,), generator=self._generator)
        return torch.tensor(rows, dtype=torch.float32)[picked][:, :, None, None]

    def noise(self, channels: int) -> torch.Tensor:
        shape = (self.count, channels, self.size, self.size)
        return torch.randn(shape, generator=self._generator)

    def edge(self, distance: Field) -> Field:
        """Coverage of a pixel from a signed distance (negative is inside): an antialiased edge."""
        return (0.5 - distance * self.size).clamp(0, 1)


def paint(below: torch.Tensor, coverage: Field, colour: torch.Tensor) -> torch.Tensor:
    """Lay `colour` over `below` (N, 3, S, S) where `coverage` (N, S, S) says."""
    return torch.lerp(below, colour, coverage[:, None])


def disc(x: Field, y: Field, radius: Field) -> Field:
    """Signed distance to a disc."""
    return torch.sqrt(x * x + y * y) - radius


def square(x: Field, y: Field, radius: Field) -> Field:
    """Signed distance to a square, about as large as the disc."""
    return torch.maximum(x.abs(), y.abs()) - 0.88 * radius


def triangle(x: Field, y: Field, radius: Field) -> Field:
    """Signed distance to an upright triangle, point up."""
    return torch.maximum(0.88 * x.abs() - 0.48 * y - 0.55 * radius, y - 0.75 * radius)


def cross(x: Field, y: Field, radius: Field) -> Field:
    """Signed distance to a plus sign."""
    wide, narrow = 1.05 * radius, 0.4 * radius
    first = torch.maximum(x.abs() - wide, y.abs() - narrow)
    return torch.minimum(first, torch.maximum(x.abs() - narrow, y.abs() - wide))


def ring(x: Field, y: Field, radius: Field) -> Field:
    """Signed distance to a ring."""
    return (torch.sqrt(x * x + y * y) - 0.78 * radius).abs() - 0.3 * radius


def wave(position: Field, period: Field) -> Field:
    """Signed distance to bands of half a period each."""
    return period / 4 - ((position / period) % 1 - 0.5).abs() * period


# ------------------------------------------------------------------------------- the four distributions

_DARK = ((0.05, 0.08, 0.25), (0.10, 0.05, 0.22), (0.02, 0.14, 0.25))
_WARM = ((0.95, 0.25, 0.15), (1.00, 0.60, 0.10), (1.00, 0.88, 0.25))
_GREEN = ((0.05, 0.50, 0.25), (0.10, 0.62, 0.50), (0.35, 0.65, 0.10))
_PALE = ((0.95, 0.97, 0.90), (0.88, 0.97, 0.93), (0.98, 0.95, 0.80))
_SKY = ((0.70, 0.87, 0.98), (0.82, 0.90, 0.96), (0.75, 0.82, 0.95))
_VIOLET = ((0.45, 0.15, 0.60), (0.20, 0.25, 0.70), (0.65, 0.15, 0.45))
_BLACK = ((0.10, 0.08, 0.08), (0.30, 0.08, 0.08), (0.22, 0.16, 0.10))
_ROSE = ((0.98, 0.72, 0.75), (0.95, 0.80, 0.65), (0.90, 0.90, 0.88))


def _discs(c: Canvas) -> torch.Tensor:
    """One glowing ball on a dark ground, lit from above."""
    x, y, radius = c.x - c.uniform(-0.16, 0.16), c.y - c.uniform(-0.16, 0.16), c.uniform(0.20, 0.34)
    light = (1 - 0.45 * (y / radius + 1) / 2).clamp(0.4, 1)
    ground = c.choice(_DARK).expand(-1, -1, c.size, c.size)
    return paint(ground, c.edge(disc(x, y, radius)), c.choice(_WARM) * light[:, None])


def _stripes(c: Canvas) -> torch.Tensor:
    """Broad slanted green bands over a pale ground."""
    angle = c.uniform(0.55, 1.0)
    across = c.x * torch.cos(angle) + c.y * torch.sin(angle)
    bands = c.edge(wave(across + c.uniform(0, 1), c.uniform(0.30, 0.45)))
    return paint(c.choice(_PALE).expand(-1, -1, c.size, c.size), bands, c.choice(_GREEN))


def _triangles(c: Canvas) -> torch.Tensor:
    """A violet peak under a sky that pales towards the ground."""
    sky = c.choice(_SKY) * (1 - 0.25 * (0.5 - c.y))[:, None] + torch.zeros(c.count, 3, c.size, c.size)
    x, y, radius = c.x - c.uniform(-0.14, 0.14), c.y - c.uniform(-0.05, 0.14), c.uniform(0.30, 0.46)
    return paint(sky, c.edge(triangle(x, y, radius)), c.choice(_VIOLET))


def _checks(c: Canvas) -> torch.Tensor:
    """An upright chessboard of rosy and dark fields."""
    period = c.uniform(0.40, 0.56)
    columns = c.edge(wave(c.x + c.uniform(0, 1), period))
    rows = c.edge(wave(c.y + c.uniform(0, 1), period))
    fields = columns + rows - 2 * columns * rows  # exclusive or of coverages
    return paint(c.choice(_ROSE).expand(-1, -1, c.size, c.size), fields, c.choice(_BLACK))


_DRAW: dict[str, Callable[[Canvas], torch.Tensor]] = dict(
    zip(SHAPES, (_discs, _stripes, _triangles, _checks), strict=True)
)


def _to_bytes(image: torch.Tensor) -> torch.Tensor:
    return image.mul(255).round_().clamp_(0, 255).to(torch.uint8)


class _Drawn(Dataset):
    """Images in memory, with the interface of `LmdbImages`."""

    images: torch.Tensor
    size: int
    digest: str
    labels: list[str] | None = None
    targets: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        """The image, with its class index where the set is labelled."""
        image = self.images[index]
        return image if self.targets is None else (image, int(self.targets[index]))

    def __getitems__(self, indices: Sequence[int]) -> list:
        return [self[index] for index in indices]


class ShapeImages(_Drawn):
    """`count` pictures of one of the four kinds, uint8 (3, size, size); the same for the same seed."""

    def __init__(self, kind: str, count: int = 2048, size: int = 38, seed: int = 0):
        if kind not in _DRAW:
            raise UserError(f"no built-in pictures 'shapes:{kind}'; there are: {', '.join(SHAPES)}")
        self.kind, self.size = kind, size
        canvas = Canvas(count, size, stream(seed, "shapes", kind))
        image = _DRAW[kind](canvas)
        brightness = canvas.uniform(0.92, 1.06)[:, None]
        self.images = _to_bytes(image * brightness + 0.012 * canvas.noise(3))
        self.digest = _name_digest("shapes", kind, count, size, seed)


# ------------------------------------------------------------------------------------ the labelled twin

_OUTLINES = {"disc": disc, "square": square, "triangle": triangle, "cross": cross, "ring": ring}
_TEXTURES = ("plain", "rows", "columns", "diagonal")
CLASSES = tuple(f"{texture} {outline}" for texture in _TEXTURES for outline in _OUTLINES)


class LabelledShapes(_Drawn):
    """Outline x texture as classes, with colours, places and sizes that tell nothing about the class.

    `classes` is a number of classes or their indices in `CLASSES`; the train and test pictures differ.
    """

    def __init__(
        self,
        classes: int | Sequence[int] = len(CLASSES),
        count_per_class: int = 100,
        size: int = 32,
        seed: int = 0,
        train: bool = True,
    ):
        chosen = list(range(classes)) if isinstance(classes, int) else list(classes)
        if not chosen or not all(0 <= index < len(CLASSES) for index in chosen):
            raise UserError(f"built-in labelled shapes have {len(CLASSES)} classes; asked for {classes}")
        self.size, self.labels = size, [CLASSES[index] for index in chosen]
        split = "train" if train else "test"
        drawn = [
            _draw_class(name, Canvas(count_per_class, size, stream(seed, "labelled shapes", name, split)))
            for name in self.labels
        ]
        self.images = torch.cat(drawn)
        self.targets = torch.arange(len(chosen)).repeat_interleave(count_per_class)
        self.digest = _name_digest("labelled shapes", chosen, count_per_class, size, seed, split)


def _draw_class(name: str, c: Canvas) -> torch.Tensor:
    texture, outline = name.split(" ")
    x, y, radius = c.x - c.uniform(-0.15, 0.15), c.y - c.uniform(-0.15, 0.15), c.uniform(0.26, 0.38)
    ground, figure, second = _three_colours(c)
    tilt = c.uniform(-0.2, 0.2)
    turned = x * torch.cos(tilt) + y * torch.sin(tilt), y * torch.cos(tilt) - x * torch.sin(tilt)
    inside = c.edge(_OUTLINES[outline](*turned, radius))
    if texture != "plain":
        angle = {"rows": math.pi / 2, "columns": 0.0, "diagonal": math.pi / 4}[texture] + c.uniform(-0.15, 0.15)
        across = x * torch.cos(angle) + y * torch.sin(angle) + c.uniform(0, 1)
        bands = c.edge(wave(across, c.uniform(0.17, 0.24)))
        figure = paint(figure.expand(-1, -1, c.size, c.size), bands, second)
    image = paint(ground.expand(-1, -1, c.size, c.size), inside, figure)
    return _to_bytes(image + 0.06 * c.noise(3))


def _three_colours(c: Canvas) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random hues at three well-separated levels of brightness, in random order."""
    hues = torch.stack([torch.cat([c.uniform(-0.14, 0.14) for _ in range(3)], 1) for _ in range(3)])
    levels = c.choice(((0.2, 0.5, 0.85), (0.2, 0.85, 0.5), (0.85, 0.2, 0.5), (0.85, 0.5, 0.2), (0.5, 0.85, 0.2)))
    first, second, third = (levels[:, i : i + 1] + hues[i][..., None] for i in range(3))
    return first, second, third


def _name_digest(*parts: object) -> str:
    return hashlib.sha256(repr((_DRAWING, *parts)).encode()).hexdigest()
