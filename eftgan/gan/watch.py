"""A look at the generator while a task trains: its curve, its best step, and whether more steps are worth it.

Nothing here changes what is trained: noise comes from a stream of its own, and who lends the generator puts it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from eftgan.data.processes import ALONE, Processes
from eftgan.data.streams import stream
from eftgan.evaluation.features import Extractor
from eftgan.evaluation.metrics import metrics_over
from eftgan.evaluation.metrics.base import Metric
from eftgan.evaluation.metrics.curve import Curve, Point, write_curve
from eftgan.evaluation.metrics.fid import FrechetDistance
from eftgan.evaluation.metrics.kid import KernelDistance
from eftgan.evaluation.real_statistics import collect_statistics
from eftgan.evaluation.statistics import FeatureStatistics
from eftgan.gan.run import GanRun
from eftgan.gan.sampling import generate
from eftgan.gan.task_features import TaskFeatures

DISTANCES: dict[str, type[Metric]] = {"kid": KernelDistance, "fid": FrechetDistance}


def distance_over(kind: str, name: str) -> Metric:
    """The metric that `evaluation.every_metric` names, over one kind of features."""
    return next(metric for metric in metrics_over(kind) if isinstance(metric, DISTANCES[name]))


@dataclass(kw_only=True)
class Watch:
    """Measures the task in training every so many steps, as the experiment says.

    All processes call it together: they share the work, and each learns the value.
    """

    run: GanRun
    extractor: Extractor
    cache: Path  # statistics of real images
    processes: Processes = ALONE
    curve: Curve = field(init=False)  # of the task in training
    kept: dict[str, Tensor] = field(init=False)  # of its best step: what training hands over to go back to

    def __post_init__(self) -> None:
        experiment = self.run.experiment
        self._options, self._training = experiment.evaluation, experiment.training
        self.metric = distance_over(self.extractor.kind, self._options.every_metric)

    def begin(self, index: int, state: Mapping[str, Tensor]) -> None:
        """A task begins, or goes on from the state that `state_dict` gave."""
        self._index = index
        self._real: FeatureStatistics | None = None
        points = state.get("points", torch.empty(0, 3)).tolist()
        self.curve = Curve(
            self.run.tasks[index],
            self.metric.name,
            self._options.every_samples,
            tuple(Point(int(step), value, None if spread != spread else spread) for step, value, spread in points),
        )
        self.kept = {key.removeprefix("kept/"): tensor for key, tensor in state.items() if key.startswith("kept/")}

    def state_dict(self) -> dict[str, Tensor]:
        """The points so far, and the best step's tensors."""
        rows = [(p.step, p.value, float("nan") if p.spread is None else p.spread) for p in self.curve.points]
        points = torch.tensor(rows, dtype=torch.float64).reshape(-1, 3)
        return {"points": points, **{f"kept/{key}": tensor for key, tensor in self.kept.items()}}

    def is_due(self, step: int, last: int) -> bool:
        """Whether a step, just made, is one to measure after; the task's last one always is."""
        return step % (self._options.every_steps or last) == 0 or step == last

    def measure(self, generator: nn.Module, step: int) -> Point:
        """The next point of the curve: of the generator as it is, the task selected."""
        task, experiment, count = self.curve.task, self.run.experiment, self._options.every_samples
        real = self._reference()
        z = torch.randn(count, experiment.network.z_dim, generator=stream(experiment.seed, task, "watch"))

        def images(block: range) -> Tensor:
            return torch.cat(list(generate(generator, z[block.start : block.stop])))

        title = f"{task}, step {step}"
        fake = collect_statistics(images, count, self.extractor, processes=self.processes, title=title)
        value = None if real is None else self.metric.from_features(real, fake)
        point = Point(step, *self.processes.tell(value))
        self.curve = self.curve.with_point(point)
        self._write()
        return point

    def _reference(self) -> FeatureStatistics | None:
        """Of the task's real images, computed once; only the first process has them."""
        features = TaskFeatures(self.run, self.extractor, self.processes)
        if not self.processes.is_first:
            features.help()
            return None
        if self._real is None:
            self._real = features.real(self._index, self.cache, None)
        features.dismiss()
        return self._real

    @property
    def keeps_best(self) -> bool:
        return self._training.selection == "best"

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what to go back to, as of the step measured last."""
        self.kept = {key: tensor.detach().clone() for key, tensor in tensors.items()}

    @property
    def has_ended(self) -> bool:
        """Whether the task ends here because its curve is flat."""
        return self._training.until == "plateau" and self.curve.is_flat(self._training.patience)

    def end(self, *, foundation: bool, last: int) -> list[str]:
        """The task is trained: note how it ended; what people should know of it, a line each.

        foundation: whether later tasks stand on weights that it trained. last: the limit of its steps.
        """
        points = self.curve.points
        kept, ended_flat = self.curve.best if self.keeps_best else points[-1], points[-1].step < last
        self.curve = replace(self.curve, kept=kept.step, foundation=foundation, ended_flat=ended_flat)
        self._write()
        task, lines = self.curve.task, []
        if ended_flat:
            lines.append(f"{task}: {self.metric.name} is flat, so the task ends at step {points[-1].step} of {last}")
        if self.keeps_best:
            lines.append(f"{task}: step {kept.step} is kept, {self.metric.name} {self.metric.text(kept.value)}")
        if warning := self.curve.warning:
            lines.append(f"warning: {warning}; give it more steps: training.first.steps={2 * last}")
        return lines

    def _write(self) -> None:
        if self.processes.is_first:
            write_curve(self.run.folder.curve(self._index, self.curve.task), self.curve)
