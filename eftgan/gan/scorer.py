"""Score lines of a GAN run: the distance of every seen task after every task, and the growth per task."""

import dataclasses
import functools
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import torch
from torch import nn

from eftgan.adapters import shared_state, task_state
from eftgan.data.processes import ALONE, OutOfStep, Processes
from eftgan.data.streams import stream
from eftgan.errors import UserError
from eftgan.evaluation.features import Extractor
from eftgan.evaluation.growth import growth, total_growth
from eftgan.evaluation.metrics import metrics_over
from eftgan.evaluation.real_statistics import kept_statistics, reference_key, statistics_path
from eftgan.evaluation.statistics import FeatureStatistics
from eftgan.files import settled_digest
from eftgan.gan.run import GanRun
from eftgan.gan.task_features import TaskFeatures
from eftgan.names import GENERATOR
from eftgan.scores import REAL, UNCHANGED, Score, append_scores, read_scores
from eftgan.tensors import read_tensors, tensors_digest
from eftgan.training.checkpoint import below, with_task


def statistics_folder(run: GanRun) -> Path:
    """Where statistics of real images are kept: beside the runs, which share them."""
    return run.folder.path.parent / ".statistics"


def score_growth(run: GanRun, through: int, networks: dict[str, nn.Module]) -> None:
    """One line for what the task adds to the networks; `networks` have the run's tasks."""
    experiment, task = run.experiment, run.tasks[through]
    if any(score.metric == "growth" and score.tested_on == task for score in read_scores(run.folder.scores)):
        return
    growths = {}
    with with_task(run.folder, through, task, networks, experiment.method):
        for role, network in networks.items():
            owned = experiment.method.owned_by_tasks(role)
            full = growth(network, experiment.network.example(role), task if owned else None)
            growths[role] = dataclasses.replace(
                full,
                adapter_parameters=full.adapter_parameters if "transforms" in owned else 0,
                adapter_bits=full.adapter_bits if "transforms" in owned else 0,
                norm_parameters=full.norm_parameters if "norms" in owned else 0,
                head_parameters=full.head_parameters if "heads" in owned else 0,
            )
    total = total_growth(growths)
    details = {k: v for k, v in dataclasses.asdict(total).items() if k != "layers"}
    details |= {
        "bytes_shared": details.pop("bytes_base"),
        "bytes_task": run.folder.task_file(through, task).stat().st_size,
    }
    line = (run.folder.path.name, experiment.method.name, experiment.seed, task, task, "growth")
    append_scores(run.folder.scores, [Score(*line, total.parameter_growth, 0, details)])


def weights_digests(run: GanRun, after: int, tested: Sequence[int]) -> list[str]:
    """One digest for each of some tasks as they are after another: of all that draws their images."""
    names, folder = run.tasks, run.folder
    if run.keeps_tasks:  # frozen weights need no network for it
        shared, _ = read_tensors(folder.shared)
        states = (shared | read_tensors(folder.task_file(i, names[i]))[0] for i in tested)
        return [tensors_digest(below(GENERATOR, state)) for state in states]
    generator = run.generator(after)
    return [tensors_digest({**shared_state(generator), **task_state(generator, names[i])}) for i in tested]


@dataclasses.dataclass(frozen=True)
class RunScorer:
    """Measures a run with one extractor and a number of samples; lines that still hold are not made again.

    Of several processes the first scores; the others help it with the features (`features.help()`) until it lets them
    go (`features.dismiss()`).
    """

    run: GanRun
    extractor: Extractor
    samples: int
    cache: Path  # statistics of real images
    samples_other: int | None = None  # samples for cells that are neither just learned nor final
    reference_samples: int | None = None  # real images to compare with; none: all of them
    processes: Processes = ALONE
    _references: dict[int, str | None] = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)

    def score(self, through: int, tasks: Collection[str] | None = None) -> list[Score]:
        """Measure each seen task as it is after task number `through` (from 0).

        Where tasks are kept to the bit, one line says so for all the earlier ones: a task is measured as just learned.
        """
        names = self.run.tasks
        wanted = [i for i in range(through + 1) if tasks is None or names[i] in tasks]
        known = read_scores(self.run.folder.scores)
        weights = dict(zip(wanted, weights_digests(self.run, through, wanted), strict=True))
        subjects = {i: subject for i in wanted if (subject := self._subject(known, i, weights[i]))}
        missing = [i for i in subjects if not self._find(known, self._after(through, i), i, subjects[i])]
        made: list[Score] = []
        written = 0
        for tested in missing:
            after = self._after(through, tested)
            carried = self._carry_over(known, after, tested, subjects[tested])
            real = None if carried else self._reference_or_say(tested)
            built_for = [names[each] for each in missing]
            measured = [] if real is None else self._measure(through, tested, built_for, subjects[tested], real)
            held = {line.metric for line in self._holding(known, after, tested, subjects[tested])}
            lines = carried or measured
            made += [line for line in lines if line.metric not in held]  # after METRICS has grown: only the new ones
            if not carried or tested == missing[-1]:  # carried lines cost nothing and wait for one that did
                append_scores(self.run.folder.scores, made[written:])
                written = len(made)
        return made + self._say_unchanged(known, through)

    def images_ahead(self, rounds: Iterable[int], tasks: Collection[str] | None = None) -> int:
        """How many images the extractor has yet to see for the lines that `score` would make after these tasks."""
        known, names = read_scores(self.run.folder.scores), self.run.tasks
        generated, real = {}, {}
        for through in rounds:
            wanted = [i for i in range(through + 1) if tasks is None or names[i] in tasks]
            for tested, weights in zip(wanted, weights_digests(self.run, through, wanted), strict=True):
                after, subject = self._after(through, tested), self._subject(known, tested, weights)
                if subject is None or self._find(known, after, tested, subject):
                    continue
                if not self._carry_over(known, after, tested, subject):
                    generated[tested, weights] = self.samples_for(after, tested)
                    real[subject["reference"]] = self._real_images(tested)
        unknown = [count for digest, count in real.items() if not statistics_path(self.cache, digest).exists()]
        return sum(generated.values()) + sum(unknown)

    def _real_images(self, tested: int) -> int:
        """How many real images of a task are compared with."""
        try:
            return min(len(self.run.real_images(tested)), self.reference_samples or sys.maxsize)
        except UserError:
            return 0

    def _after(self, through: int, tested: int) -> int:
        """The task after which a cell is measured: a kept task's own, since it stays as it was then."""
        return tested if self.run.keeps_tasks else through

    def _say_unchanged(self, known: list[Score], through: int) -> list[Score]:
        """The line that carries the scores of all earlier tasks over, if tasks are kept and it is not there."""
        name = self.run.tasks[through]
        said = any((line.metric, line.trained_through) == (UNCHANGED, name) for line in known)
        if through == 0 or said or not self.run.keeps_tasks:
            return []
        experiment, details = self.run.experiment, {"shared": settled_digest(self.run.folder.shared)}
        head = (self.run.folder.path.name, experiment.method.name, experiment.seed, name, name)
        line = Score(*head, UNCHANGED, float(through), 0, details)
        append_scores(self.run.folder.scores, [line])
        return [line]

    def samples_for(self, through: int, tested: int) -> int:
        """How many images a cell of the table is measured with."""
        main = through == tested or through == len(self.run.tasks) - 1
        return self.samples if main or self.samples_other is None else self.samples_other

    @functools.cached_property
    def features(self) -> TaskFeatures:
        return TaskFeatures(self.run, self.extractor, self.processes)

    def reference(self, tested: int) -> FeatureStatistics:
        """Statistics of a task's training images; where these are gone, what was kept of them serves."""
        try:
            return self.features.real(tested, self.cache, self.reference_samples)
        except OutOfStep:
            raise
        except UserError:
            kept = kept_statistics(self.cache, self._references.get(tested))
            if kept is None:
                raise
            return kept

    def _subject(self, known: list[Score], tested: int, weights: str) -> dict[str, str] | None:
        """What a line must be about to hold today, see `Score.subject`; none where the images are gone for good."""
        if tested not in self._references:  # to open a large collection may take a while
            size = self.run.experiment.network.sizes[-1]
            try:
                images, count = self.run.real_images(tested), self.reference_samples
                self._references[tested] = reference_key(images, self.extractor, size, count).digest
            except UserError as error:
                self._references[tested] = self._recorded_reference(known, tested)
                if self._references[tested] is None:
                    print(f"{self.run.tasks[tested]}: not measured: {error}")
        reference = self._references[tested]
        if reference is None:
            return None
        digest = self.extractor.digest
        return {"weights": weights, "reference": reference, "extractor_digest": digest}

    def _recorded_reference(self, known: list[Score], tested: int) -> str | None:
        """What earlier lines say of a task's images, where these are gone."""
        lines = [score.subject for score in known if score.tested_on == self.run.tasks[tested]]
        own = [line["reference"] for line in lines if line["extractor_digest"] == self.extractor.digest]
        return own[-1] if own else None

    def _find(self, known: list[Score], through: int, tested: int, subject: dict[str, str]) -> list[Score]:
        """The cell's lines that hold, if there is one of every metric."""
        found = self._holding(known, through, tested, subject)
        return found if {score.metric for score in found} == self._metrics else []

    @property
    def _metrics(self) -> set[str]:
        return {metric.name for metric in metrics_over(self.extractor.kind)}

    def _holding(self, known: list[Score], through: int, tested: int, subject: dict[str, str]) -> list[Score]:
        """The cell's lines about just this, measured with as many samples or more."""
        names = (self.run.tasks[through], self.run.tasks[tested])
        return [
            score
            for score in known
            if (score.trained_through, score.tested_on) == names
            and score.metric in self._metrics
            and score.n >= self.samples_for(through, tested)
            and score.subject == subject
        ]

    def _carry_over(self, known: list[Score], through: int, tested: int, subject: dict[str, str]) -> list[Score]:
        """The task's earlier lines, if its weights are proven to be the same bits."""
        for earlier in range(tested, through):
            if found := self._find(known, earlier, tested, subject):
                return [self._carried(score, self.run.tasks[through]) for score in found]
        return self._take_over(subject) if through == 0 else []

    def _take_over(self, subject: dict[str, str]) -> list[Score]:
        """The first task's lines of the run that this one started from, if it has the same weights there."""
        start, task = self.run.experiment.start, self.run.tasks[0]
        known = read_scores(Path(start) / self.run.folder.scores.name) if start else []
        found = self._find(known, 0, 0, subject)
        kinds = {(score.metric, subject["reference"]) for score in found}
        floor = {  # by metric, so that the newest stays; its N may be smaller: half of the real images at most
            score.metric: self._own(score)
            for score in known
            if (score.trained_through, score.tested_on) == (REAL, task)
            and (score.metric, score.subject["reference"]) in kinds
        }
        return [self._carried(score, task) for score in found] + list(floor.values())

    def _carried(self, score: Score, through: str) -> Score:
        return dataclasses.replace(
            self._own(score), trained_through=through, details={**score.details, "carried": True}
        )

    def _own(self, score: Score) -> Score:
        """A line that may be another run's, as one of this run."""
        experiment = self.run.experiment
        return dataclasses.replace(
            score, run=self.run.folder.path.name, method=experiment.method.name, seed=experiment.seed
        )

    def _reference_or_say(self, tested: int) -> FeatureStatistics | None:
        """The statistics; none, with a line, where the images and all that was kept of them are gone."""
        try:
            return self.reference(tested)
        except OutOfStep:
            raise
        except UserError as error:
            print(f"{self.run.tasks[tested]}: not measured: {error}")
            return None

    def _measure(
        self, through: int, tested: int, built_for: Sequence[str], subject: dict[str, str], real: FeatureStatistics
    ) -> list[Score]:
        """Distances between every training image of the task and freshly generated ones."""
        after, task = self._after(through, tested), self.run.tasks[tested]
        count, title = self.samples_for(after, tested), f"{task} after {self.run.tasks[after]}"
        fake = self.features.generated(tested, count, through, built_for, title)
        lines = self._lines(self.run.tasks[after], task, real, fake, {**subject, "carried": False})
        return lines + self._floor(task, real, subject["reference"]) if after == tested else lines

    def _floor(self, task: str, real: FeatureStatistics, reference: str) -> list[Score]:
        """Some real images against the others, as many as are generated: what a perfect generator would be given."""
        count = min(self.samples, len(real.features) // 2)
        if count < 2:
            return []
        order = torch.randperm(len(real.features), generator=stream(0, reference, "floor"))
        some, others = (FeatureStatistics.from_features(real.features[rows]) for rows in order.tensor_split([count]))
        return self._lines(REAL, task, others, some, {"reference": reference})

    def _lines(
        self, through: str, task: str, real: FeatureStatistics, other: FeatureStatistics, details: dict
    ) -> list[Score]:
        """Every metric of one comparison."""
        experiment, extractor = self.run.experiment, self.extractor
        head = (self.run.folder.path.name, experiment.method.name, experiment.seed, through, task)
        details = {
            "extractor": extractor.name,
            "extractor_digest": extractor.digest,
            "resize": extractor.resize,
            "reference_n": real.n,
            **details,
        }
        lines = []
        for metric in metrics_over(extractor.kind):
            value, spread = metric.from_features(real, other)
            further = {} if spread is None else {"std": spread}
            lines.append(Score(*head, metric.name, value, other.n, {**details, **further}))
        return lines
