"""Many short tasks in one process: do memory, open files and the time of a step stay as they were?

python -m benchmarks.soak --tasks 50 --steps 40 --out runs/soak
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
from eftgan.gan.experiment import GanExperiment
from eftgan.gan.kind import train_gan
from eftgan.gan.trainer import GanTrainer

WORDS = [
    "network={stages: 1, base_size: 32, ngf: 8, ndf: 8, z_dim: 16}",
    "adapters={a: 2, b: 2}",
    "evaluation={features: random, samples: 32}",
]


@dataclass(frozen=True)
class Figures:
    """What one task left behind."""

    task: int
    step_ms: float  # median, of processor time
    task_s: float  # training, saving, measuring, the report
    resident_mb: float
    open_files: int
    state_kb: float


class Watch:
    """Notes the start of every step and the end of every task."""

    def __init__(self, trainer: type[GanTrainer]) -> None:
        self.starts: list[float] = []
        self.figures: list[Figures] = []
        self._since = time.monotonic()
        trainer._micro_step = self._noted_step(trainer._micro_step)
        trainer.run = self._noted_run(trainer.run)

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
                self.note(index, trainer.folder.state_files()[-1])

            trainer.after_task = noted_after_task
            run(trainer, tasks)

        return noted

    def note(self, index: int, state: Path) -> None:
        steps = [b - a for a, b in zip(self.starts, self.starts[1:], strict=False)]
        now = time.monotonic()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.figures.append(
            Figures(
                index + 1,
                statistics.median(steps) * 1e3,
                now - self._since,
                resident / 1e6,
                len(os.listdir("/proc/self/fd")),
                state.stat().st_size / 1e3,
            )
        )
        self.starts, self._since = [], now


def soak(tasks: int, steps: int, out: Path) -> list[Figures]:
    """Train that many tasks in a fresh folder and give the figures of each."""
    shutil.rmtree(out, ignore_errors=True)
    kinds = list(SHAPES)
    data = {"out": str(out), "training": {"batch": 8, "steps": steps, "save_every_steps": 0}}
    data["tasks"] = [{"name": f"t{i}", "data": f"shapes:{kinds[i % len(kinds)]}", "limit": 32} for i in range(tasks)]
    for word in WORDS:
        apply_override(data, word)
    watch = Watch(GanTrainer)
    train_gan(build(GanExperiment, data), "python -m benchmarks.soak")
    return watch.figures


def ratio(figures: list[Figures], field: str, window: int = 3) -> float:
    """The last tasks' median over that of task 2 and those after it."""
    values = [getattr(each, field) for each in figures]
    return statistics.median(values[-window:]) / statistics.median(values[1 : 1 + window])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--check", action="store_true", help="fail where something grew")
    args = parser.parse_args()
    figures = soak(args.tasks, args.steps, args.out)
    print("| task | CPU per step, ms | task, s | resident, MB | open files | state, kB |\n|---|---|---|---|---|---|")
    for each in figures:
        if each.task in (1, 2) or each.task % 10 == 0:
            print("| " + " | ".join(f"{value:.4g}" for value in asdict(each).values()) + " |")
    ratios = {each: round(ratio(figures, each), 3) for each in ("step_ms", "task_s", "resident_mb", "open_files")}
    print(f"load {os.getloadavg()[0]:.1f}; last tasks over tasks 2 to 4: {json.dumps(ratios)}")
    if args.check and (ratios["step_ms"] > 1.05 or ratios["resident_mb"] > 1.2 or ratios["open_files"] > 1):
        raise SystemExit("something grew")


if __name__ == "__main__":
    main()
