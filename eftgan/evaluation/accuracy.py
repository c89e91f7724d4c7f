"""Accuracies of a classifier that learns task after task: their average and forgetting."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from torch import Tensor

from eftgan.evaluation.metrics.accuracy import ACCURACY_CIL, ACCURACY_TIL, TASK_ACCURACY
from eftgan.evaluation.task_inference import infer_classes
from eftgan.scores import Score

TIL, CIL, TASK = ACCURACY_TIL.name, ACCURACY_CIL.name, TASK_ACCURACY.name
Matrix = dict[tuple[int, int], float]  # (after task i, on task j), from 0


def accuracies(
    logits: list[Tensor], own: int, labels: Tensor, tasks: Tensor, class_scores: list[Tensor] | None = None
) -> dict[str, float]:
    """Shares of correct answers on one task's images, from the logits of every seen task; `own`: the images' task.

    tasks: the index (N,) of the task that each image is taken for. class_scores: what then names the class, where it is
    not the logits.
    accuracy-TIL: the task is given. accuracy-CIL: task and class must both be found. task-accuracy: the task is.
    """
    found = tasks == own
    right = {
        TIL: logits[own].argmax(1) == labels,
        CIL: found & (infer_classes(class_scores or logits, tasks) == labels),
        TASK: found,
    }
    return {metric: int(each.sum()) / len(labels) for metric, each in right.items()}


def accuracy_matrix(scores: Iterable[Score], tasks: Sequence[str], metric: str = TIL) -> Matrix:
    """The matrix of one run from its score lines; later lines win."""
    place = {task: index for index, task in enumerate(tasks)}
    return {
        (place[score.trained_through], place[score.tested_on]): score.value
        for score in scores
        if score.metric == metric and score.trained_through in place and score.tested_on in place
    }


def average_over_seen(matrix: Matrix, after: int) -> float:
    """Mean accuracy over the tasks seen, after task `after`."""
    return fmean(matrix[after, on] for on in range(after + 1))


def forgetting(matrix: Matrix, after: int) -> float:
    """How much lower the earlier tasks are after task `after` than when each was just learned, on average."""
    if after == 0:
        return 0.0
    return fmean(matrix[on, on] - matrix[after, on] for on in range(after))
