"""Many short tasks in one process: do time, memory, open files and states stay as they were?

python -m benchmarks.soak --tasks 50 --steps 20 --out runs/soak
python -m benchmarks.soak --tasks 1000 --steps 5 --out runs/soak-1000
"""

import argparse
import json
import os
import shutil
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from eftgan.config import apply_override, build
from eftgan.data.shapes import SHAPES
from eftgan.gan import kind
from eftgan.gan.experiment import GanExperiment
from eftgan.gan.run import GanRun
from eftgan.gan.trainer import GanTrainer
from eftgan.runfolder import RunFolder

WORDS = [
    "network={stages: 1, base_size: 32, ngf: 8, ndf: 8, z_dim: 16}",
    "adapters={a: 2, b: 2}",
    "evaluation={features: random, samples: 32}",
]

COLUMNS = ("task", "step, ms", "end of task, s", "report, s", "sampling, s", "resident, MB", "open files", "state, kB")


@dataclass(frozen=True)
class Figures:
    """What one task left behind."""

    task: int
    step_ms: float  # median, of processor time, as the next three
    end_s: float  # from the last step: saving, drawing, measuring
    report_s: float  # the report, where one was written
    sample_s: float  # opening the run and drawing eight images of this task
    resident_mb: float
    open_files: int
    state_kb: float  # the larger of the two that are kept: in the midst of the task, with optimizers


class Watch:
    """Notes the start of every step and the end of every task."""

    def __init__(self, trainer: type[GanTrainer]) -> None:
        self.starts: list[float] = []
        self.figures: list[Figures] = []
        self._reporting = 0.0
        trainer._micro_step = self._noted_step(trainer._micro_step)
        trainer.run = self._noted_run(trainer.run)
        kind.write_report = self._noted_report(kind.write_report)

    def _noted_step(self, step):
        def noted(*args):
            self.starts.append(time.process_time())  # of the processor: other programs must not count
            return step(*args)

        return noted

    def _noted_run(self, run):
        def noted(trainer, tasks):
            after_task = trainer.after_task

            def noted_after_task(index):
                after_task(index)
                self.note(index, trainer.folder)

            trainer.after_task = noted_after_task
            run(trainer, tasks)

        return noted

    def _noted_report(self, write):
        def noted(*args):
            begun = time.process_time()
            write(*args)
            self._reporting = time.process_time() - begun

        return noted

    def note(self, index: int, folder: RunFolder) -> None:
        ended = time.process_time()
        steps = [b - a for a, b in zip(self.starts, self.starts[1:], strict=False)]
        step = statistics.median(steps)
        sampled = _sampling(folder.path, index)
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.figures.append(
            Figures(
                index + 1,
                step * 1e3,
                ended - self.starts[-1] - step - self._reporting,
                self._reporting,
                sampled,
                resident / 1e6,
                len(os.listdir("/proc/self/fd")),
                max(state.stat().st_size for state in folder.state_files()) / 1e3,
            )
        )
        self.starts, self._reporting = [], 0.0


def _sampling(folder: Path, index: int) -> float:
    begun = time.process_time()
    run = GanRun(folder)
    run.sample(run.tasks[index], 8, seed=0, generator=run.generator(index, [run.tasks[index]]))
    return time.process_time() - begun


def soak(tasks: int, steps: int, out: Path) -> list[Figures]:
    """Train that many tasks in a fresh folder and give the figures of each."""
    shutil.rmtree(out, ignore_errors=True)
    kinds = list(SHAPES)
    data = {"out": str(out), "training": {"batch": 8, "steps": steps, "save_every_steps": max(1, steps - 1)}}
    data["tasks"] = [{"name": f"t{i}", "data": f"shapes:{kinds[i % len(kinds)]}", "limit": 32} for i in range(tasks)]
    for word in WORDS:
        apply_override(data, word)
    watch = Watch(GanTrainer)
    kind.train_gan(build(GanExperiment, data), "python -m benchmarks.soak")
    return watch.figures


def ratio(figures: list[Figures], field: str, window: int = 9) -> float:
    """The last tasks' median over that of tasks 3 to 11: with the first, the one before and its own, as all later."""
    values = [getattr(each, field) for each in figures]
    return statistics.median(values[-window:]) / statistics.median(values[2 : 2 + window])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--check", action="store_true", help="fail where something grew")
    args = parser.parse_args()
    figures = soak(args.tasks, args.steps, args.out)
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for each in figures:
        if each.task in (1, 2) or each.task % max(10, args.tasks // 10) == 0:
            print("| " + " | ".join(f"{value:.4g}" for value in asdict(each).values()) + " |")
    grown = ("step_ms", "end_s", "sample_s", "resident_mb", "open_files", "state_kb")
    ratios = {each: round(ratio(figures, each), 3) for each in grown}
    page = args.out / "report.html"
    print(f"report: {page.stat().st_size / 1e6:.1f} MB")
    print(f"load {os.getloadavg()[0]:.1f}; last 9 tasks over tasks 3 to 11: {json.dumps(ratios)}")
    if args.check and (ratios["step_ms"] > 1.05 or ratios["resident_mb"] > 1.2 or ratios["open_files"] > 1):
        raise SystemExit("something grew")


if __name__ == "__main__":
    main()
