"""Run folders of GAN training, read back: the generator after any task, samples, grids."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from eftgan.adapters import inference_network
from eftgan.data.augmentation import centre_crop
from eftgan.data.collection import ImageCollection
from eftgan.data.grid import encode_png, save_grid, tile
from eftgan.data.streams import stream
from eftgan.errors import UserError
from eftgan.gan.experiment import GanExperiment, open_task_images
from eftgan.gan.networks import build_generator
from eftgan.gan.sampling import GRID_IMAGES, fixed_noise, generate
from eftgan.names import GENERATOR
from eftgan.reports.lines import final_lines
from eftgan.reports.results import shown_of
from eftgan.training.checkpoint import read_shared, read_task
from eftgan.training.run import SavedRun

CARD_COLUMNS = 8  # images of a task in the picture of a model card
QUICK = 500  # images for a first impression


class GanRun(SavedRun[GanExperiment]):
    """A run of GAN training."""

    experiment_type = GanExperiment
    pipeline = "unconditional-image-generation"
    tags = ("gan",)
    _newest: tuple[object, nn.Module] | None = None  # the generator built last, and of which tasks and files

    def generator(self, after: int, tasks: Sequence[str] | None = None) -> nn.Module:
        """The generator as it was when task number `after` (from 0) was trained, in eval mode.

        tasks: those that it is wanted for (all that were seen by then); of frozen shared weights, no others are read.
        Built once for all who draw from it after a task: treat it as read-only.
        """
        self.require_trained()
        wanted = self._wanted(after, tasks)
        key = [(path, path.stat().st_mtime_ns) for path in self.generator_files(after, tasks) if path.exists()]
        if self._newest is None or self._newest[0] != key:
            self._newest = (key, self._build([(index, self.tasks[index]) for index in wanted]))
        return self._newest[1]

    def generator_files(self, after: int, tasks: Sequence[str] | None = None) -> list[Path]:
        """What `generator` reads."""
        shared = [self.folder.shared] if self.folder.shared.exists() else []
        return [*shared, *(self.folder.task_file(index, self.tasks[index]) for index in self._wanted(after, tasks))]

    def _wanted(self, after: int, tasks: Sequence[str] | None) -> list[int]:
        """The tasks that the generator is to have, by their places."""
        return self.needed(tasks or self.tasks[: after + 1]) if self.keeps_tasks else [after]

    def _build(self, tasks: Sequence[tuple[int, str]]) -> nn.Module:
        generator = build_generator(self.experiment)
        if self.folder.shared.exists():
            read_shared(self.folder, {GENERATOR: generator})
        for index, name in tasks:
            read_task(self.folder, index, name, GENERATOR, generator, self.experiment.method)
        return generator.eval()

    def sample(
        self,
        task: str,
        count: int,
        seed: int = 0,
        generator: nn.Module | None = None,
        truncation: float | None = None,
    ) -> Tensor:
        """`count` finest images of a task (uint8), the same for the same seed.

        generator: of this run, with the task; where many tasks are drawn, one for all of them saves time.
        """
        if generator is None:
            generator = self.generator(len(self.trained) - 1, [self.tasks[self.index(task)]])
        z = self.noise(task, count, seed, truncation)
        return torch.cat(list(generate(inference_network(generator, task), z)))

    def noise(self, task: str, count: int, seed: int, truncation: float | None = None, use: str = "sample") -> Tensor:
        """The noise (count, Z) that images of a task are drawn from; `use` names another stream of it."""
        z = torch.randn(count, self.experiment.network.z_dim, generator=stream(seed, task, use))
        return z if truncation is None else truncated(z, truncation)

    def draw_grids(self, after: int) -> None:
        """Grids of every seen task after one task, and of its images, where none were drawn since it was trained.

        Tasks that are kept to the bit have theirs already.
        """
        trained = self.folder.task_file(after, self.tasks[after]).stat().st_mtime_ns

        def is_due(grid: Path) -> bool:
            return not grid.exists() or grid.stat().st_mtime_ns < trained

        drawn = [after] if self.keeps_tasks else range(after + 1)
        missing = [i for i in drawn if is_due(self.folder.sample_grid(self.tasks, after, i))]
        if missing:
            generator = self.generator(after, [self.tasks[index] for index in missing])
            for index in missing:
                z = fixed_noise(self.experiment.seed, self.tasks[index], self.experiment.network.z_dim)
                images = torch.cat(list(generate(inference_network(generator, self.tasks[index]), z)))
                save_grid(images, self.folder.sample_grid(self.tasks, after, index), columns=4)
        real = self.folder.real_grid(after, self.tasks[after])
        if is_due(real):
            try:
                collection = self.real_images(after)
            except UserError as error:
                print(f"no picture of real images is drawn: {error}")
                return
            picked = torch.stack([collection[i * len(collection) // GRID_IMAGES] for i in range(GRID_IMAGES)])
            save_grid(centre_crop(picked, self.experiment.network.sizes[-1]), real, columns=4)

    def summary(self) -> str:
        """What a person does next with a run."""
        path, task = shlex.quote(str(self.folder.path)), self.trained[-1]
        unmeasured = self.experiment.evaluation.features == "none"
        evaluate = f"eftgan evaluate {path} --fid-samples {QUICK} --reference-samples {QUICK}"
        return "\n".join([
            f"\n{len(self.trained)} tasks trained: {', '.join(self.trained)}",
            *(f"  {line}" for line in final_lines(self.folder.path, len(self.trained) - 1)),
            f"  samples  {self.folder.samples}",
            f"  report   {self.folder.report}",
            *([f"  scores   none yet (evaluation.features: none); {evaluate} comes next"] * unmeasured),
            "next:",
            f"  eftgan sample {path} --task {task} --n 64 --out {task}.png",
            f"  {evaluate}    # FID by Inception, in minutes; more images take longer and say more",
            f"  eftgan info {path}",
        ])  # fmt: skip

    def export(self, task: str, out: Path) -> list[str]:
        from eftgan.gan.export import export_generator

        return export_generator(self, task, out)

    def example(self, task: str) -> list[str]:
        size = self.experiment.network.sizes[-1]
        return [f'images = run.sample("{task}", 16, seed=0)  # uint8 (16, 3, {size}, {size})']

    def command(self, task: str) -> str:
        return f"eftgan sample hf:{{name}} --task {task} --n 64"

    def picture(self) -> bytes:
        """One row of samples per task; of many tasks, some evenly spaced."""
        tasks = [self.present[place] for place in shown_of(len(self.present))]
        generator = self.generator(len(self.trained) - 1, tasks)
        drawn = [self.sample(task, CARD_COLUMNS, 0, generator) for task in tasks]
        return encode_png(tile(torch.cat(drawn), CARD_COLUMNS))

    def describe_network(self) -> str:
        return self.experiment.network.describe()

    def data_of(self, index: int) -> str:
        return self.experiment.tasks[index].data

    def real_images(self, index: int) -> ImageCollection:
        """What a task's generated images are compared with: its training images, or those that were held out.

        A UserError where they are gone.
        """
        task = self.experiment.tasks[index]
        return open_task_images(self.experiment, task, self.folder.data_records().get(task.name), measured=True)


def truncated(z: Tensor, limit: float) -> Tensor:
    """Noise redrawn where it is beyond `limit`: more typical, less varied images."""
    return torch.erfinv(torch.erf(z / 2**0.5) * torch.erf(torch.tensor(limit / 2**0.5))) * 2**0.5
