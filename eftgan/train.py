"""Train an experiment from its config to its report."""

import contextlib
import functools
from collections.abc import Collection
from pathlib import Path

from accelerate import Accelerator
from torch import nn

from eftgan.data.sequences import data_record
from eftgan.evaluation.features import load_extractor
from eftgan.evaluation.nearest import Nearest, nearest_earlier
from eftgan.experiment import GanExperiment, build_networks, open_tasks, start_folder, start_of
from eftgan.names import NEAREST
from eftgan.reports.write import write_report
from eftgan.runfolder import RunFolder
from eftgan.runs import GanRun
from eftgan.scoring import RunScorer, score_growth, statistics_folder
from eftgan.training.gan import GanTask, GanTrainer
from eftgan.training.launch import make_accelerator


def train_gan(experiment: GanExperiment, command: str) -> GanRun | None:
    """Train every task, going on where the folder stands; after each one draw, measure and report.

    The main process gets the finished run back, the others nothing.
    """
    folder, training = RunFolder(Path(experiment.out)), experiment.training
    accelerator = make_accelerator(
        folder.path,
        accumulation=training.accumulation,
        mixed_precision=training.mixed_precision,
        log_with=experiment.log_with,
    )
    tasks = open_tasks(experiment, accelerator.num_processes)
    start_of(experiment)
    networks = build_networks(experiment)  # as the rest: whatever is wrong shows before anything is written
    known = folder.read_facts().get("nearest", {})
    nearest = find_nearest(experiment, tasks, known)
    for task in tasks:
        if task.name in nearest:
            task.init = nearest[task.name].task
        elif task.name in known:
            task.init = known[task.name]["task"]
    with folder.locked() if accelerator.is_main_process else contextlib.nullcontext():
        if accelerator.is_main_process:
            typed = {task.name: task.data for task in experiment.tasks}
            opened = [task for task in tasks if "images" in vars(task)]
            data = {task.name: data_record(typed[task.name], task.images.digest) for task in opened}
            start_folder(experiment, folder, "gan", command, data, nearest)
            for task, found in nearest.items():
                print(f"task {task} starts from {found}")
        accelerator.wait_for_everyone()
        run = GanRun(folder.path)
        _train(run, experiment, networks, tasks, accelerator)
    return run if accelerator.is_main_process else None


def find_nearest(experiment: GanExperiment, tasks: list[GanTask], known: Collection[str]) -> dict[str, Nearest]:
    """Where the tasks start that are to start from the nearest one and have not found it yet."""
    method = experiment.method
    nearest = [task.name for task in tasks[1:] if (task.init or method.init) == NEAREST and not method.fresh]
    wanted = [name for name in nearest if name not in known]
    images = {task.name: task.images for task in tasks} if wanted else {}
    return nearest_earlier(images, wanted, experiment.network.sizes[-1])


def _train(
    run: GanRun,
    experiment: GanExperiment,
    networks: dict[str, nn.Module],
    tasks: list[GanTask],
    accelerator: Accelerator,
) -> None:
    if experiment.log_with:
        accelerator.init_trackers("gan")

    def after_task(index: int) -> None:
        measures, newest = experiment.evaluation.features != "none", index == len(run.trained) - 1
        if measures and newest and accelerator.num_processes > 1:  # the long part of a first measurement
            share = {"rank": accelerator.process_index, "processes": accelerator.num_processes}
            scorer(run).reference(index, **share, barrier=accelerator.wait_for_everyone)
        if accelerator.is_main_process:
            score_growth(run, index, networks)
            finish_task(run, index)
        accelerator.wait_for_everyone()

    GanTrainer(
        accelerator=accelerator,
        networks=networks,
        method=experiment.method,
        options=experiment.training,
        sizes=experiment.network.sizes,
        z_dim=experiment.network.z_dim,
        seed=experiment.seed,
        folder=run.folder,
        start=start_of(experiment),
        after_task=after_task,
    ).run(tasks)
    accelerator.end_training()


def finish_task(run: GanRun, index: int) -> None:
    """Grids, scores and the report after one task; what is there already is not made again."""
    run.draw_grids(index)
    if run.experiment.evaluation.features != "none":
        scorer(run).score(index)
    if index == len(run.trained) - 1:  # a continued run passes its earlier tasks without a report for each
        write_report([run.folder.path], run.folder.report)


def scorer(run: GanRun) -> RunScorer:
    """What measures a run as its config says."""
    evaluation = run.experiment.evaluation
    return RunScorer(run, _extractor(evaluation.features), evaluation.samples, statistics_folder(run))


_extractor = functools.cache(load_extractor)
