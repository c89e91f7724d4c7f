"""Two folders of images against each other: the same FID as `python -m pytorch_fid A B`."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from eftgan.data.images import open_image
from eftgan.data.spread import spread
from eftgan.errors import UserError
from eftgan.evaluation.features import Extractor
from eftgan.evaluation.metrics import Metric, metrics_over
from eftgan.evaluation.metrics.selection import most_images_over
from eftgan.evaluation.statistics import FeatureStatistics, spread_rows
from eftgan.progress import progress_bar

EXTENSIONS = {".bmp", ".jpg", ".jpeg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}  # as pytorch-fid's
BATCH = 50


@dataclass(frozen=True)
class Comparison:
    """The metrics of one folder against another, and what a reader needs in order to repeat them."""

    metrics: list[Metric]
    values: dict[str, tuple[float, float | None]]  # value and spread by the metric's name
    n: tuple[int, int]
    extractor: str
    weights: str
    resize: str

    def __str__(self) -> str:
        shown = [f"{each.name} {each.single_text(*self.values[each.name])}{each.unit}" for each in self.metrics]
        behind = [f"N {self.n[0]} and {self.n[1]}", f"({self.extractor}, {self.resize})"]
        return "   ".join(shown + behind)


def compare_folders(
    real: Path,
    fake: Path,
    extractor: Extractor,
    *,
    metrics: Sequence[Metric] | None = None,
    mixed_sizes: bool = False,
    progress: bool = True,
) -> Comparison:
    """Metrics over the extractor's features (none: the usual ones), for the images directly inside two folders."""
    metrics = metrics_over(extractor.kind) if metrics is None else metrics
    for folder in (real, fake):
        image_files(Path(folder))  # a missing folder is refused before the network runs over the other one
    of_real, of_fake = (
        folder_statistics(Path(folder), extractor, mixed_sizes=mixed_sizes, progress=progress)
        for folder in (real, fake)
    )
    return Comparison(
        metrics=list(metrics),
        values={metric.name: metric.from_features(of_real, of_fake) for metric in metrics},
        n=(of_real.n, of_fake.n),
        extractor=extractor.name,
        weights=extractor.digest,
        resize=extractor.resize,
    )


def folder_statistics(
    folder: Path, extractor: Extractor, *, mixed_sizes: bool = False, progress: bool = True
) -> FeatureStatistics:
    """Statistics of the images directly inside a folder.

    pytorch-fid stops at images of different sizes unless its batch size is 1; then each one is stretched to
    the network's size by itself. Here the first such image is an error, and `mixed_sizes` allows it,
    with pytorch-fid's result for batch size 1.
    """
    files = image_files(folder)
    files = [files[i] for i in spread(len(files), most_images_over(extractor.kind))]
    statistics = FeatureStatistics(extractor.dims, keep=set(spread_rows(len(files))))
    expected: tuple[int, ...] | None = None
    with progress_bar(total=len(files), desc=folder.name, unit="img", show=progress, leave=False) as bar:
        for paths, images in _batches(files):
            expected = expected or tuple(images[0].shape)
            if not mixed_sizes:
                _require_one_size(paths, images, expected, files[0])
            for _, group in groupby(images, key=lambda image: image.shape):
                statistics.update(extractor(torch.stack(list(group))))
            bar.update(len(paths))
    return statistics


def image_files(folder: Path) -> list[Path]:
    """The images directly inside a folder, by name; fewer than 2 are an error."""
    require_folder(folder)
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in EXTENSIONS and file.is_file())
    if len(files) < 2:
        raise UserError(
            f"a distance needs at least 2 images on each side; {folder} has {len(files)} "
            f"(of {', '.join(sorted(EXTENSIONS))}, directly inside it)"
        )
    return files


def require_folder(folder: Path) -> None:
    """Refuse a folder that is not there."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; give a folder of images")


def read_image(path: Path) -> Tensor:
    """One image file as uint8 (3, H, W)."""
    try:
        with open_image(path) as image:
            return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    except Exception as error:  # decoders raise whatever a damaged file makes of them
        raise UserError(f"{path} can't be read as an image ({error}); remove or replace it") from error


def _batches(files: list[Path]) -> Iterator[tuple[list[Path], list[Tensor]]]:
    """Batches of decoded images; threads decode the next batch while the network works on this one."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        ahead: tuple[list[Path], Iterator[Tensor]] | None = None
        for start in range(0, len(files), BATCH):
            paths = files[start : start + BATCH]
            current, ahead = ahead, (paths, pool.map(read_image, paths))
            if current is not None:
                yield current[0], list(current[1])
        if ahead is not None:
            yield ahead[0], list(ahead[1])


def _require_one_size(paths: list[Path], images: list[Tensor], expected: tuple[int, ...], first: Path) -> None:
    for path, image in zip(paths, images, strict=True):
        if tuple(image.shape) != expected:
            raise UserError(
                f"images of different sizes: {first.name} is {expected[2]} x {expected[1]}, "
                f"{path} is {image.shape[2]} x {image.shape[1]}. Bring them to one size, or allow them with "
                "--mixed-sizes (each is then stretched to the network's size by itself)"
            )
