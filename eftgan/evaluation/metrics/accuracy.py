"""Shares of test images that a classifier gets right; `eftgan.evaluation.accuracy` computes them from logits."""

from eftgan.evaluation.metrics.base import Metric

ACCURACY_CIL = Metric(
    name="accuracy-CIL",
    lower_is_better=False,
    digits=1,
    scale=100,
    unit=" %",
    main=True,
    setting="class-incremental",
    by_rule=True,
    explanation="Accuracy-CIL is the share of test pictures classified correctly when the task is not given: the "
    "choice is among all classes seen so far, so that it falls with every task even where nothing is forgotten",
)
ACCURACY_TIL = Metric(
    name="accuracy-TIL",
    lower_is_better=False,
    digits=1,
    scale=100,
    unit=" %",
    main=True,
    setting="task-incremental",
    explanation="Accuracy-TIL is the share of test pictures classified correctly when the task is given: the choice is "
    "among its own classes, so that it falls only by what is forgotten",
)
ACCURACY = Metric(name="accuracy", lower_is_better=False, digits=1, scale=100, unit=" %", main=True)
TASK_ACCURACY = Metric(name="task-accuracy", lower_is_better=False, digits=1, scale=100, unit=" %", by_rule=True)
