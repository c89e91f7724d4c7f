"""Shares of test images that a classifier gets right; `eftgan.evaluation.accuracy` computes them from logits."""

from eftgan.evaluation.metrics.base import Metric

ACCURACY_CIL = Metric(
    name="accuracy-CIL",
    lower_is_better=False,
    digits=1,
    scale=100,
    unit=" %",
    main=True,
    explanation="Accuracy-CIL is the share of test pictures classified correctly when the task is not given",
)
ACCURACY_TIL = Metric(
    name="accuracy-TIL",
    lower_is_better=False,
    digits=1,
    scale=100,
    unit=" %",
    main=True,
    explanation="Accuracy-TIL is the share of test pictures classified correctly when the task is given",
)
ACCURACY = Metric(name="accuracy", lower_is_better=False, digits=1, scale=100, unit=" %", main=True)
TASK_ACCURACY = Metric(name="task-accuracy", lower_is_better=False, digits=1, scale=100, unit=" %")
