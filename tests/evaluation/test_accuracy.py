"""Accuracies and what follows from a matrix of them, by hand."""

import pytest
import torch

from eftgan.evaluation.accuracy import (
    CIL,
    TASK,
    TIL,
    accuracies,
    accuracy_matrix,
    average_over_seen,
    forgetting,
)
from eftgan.scores import Score


def test_given_and_inferred_tasks_are_counted_apart():
    own = torch.tensor([[5.0, -5.0], [5.0, -5.0], [0.1, 0.0], [-5.0, 5.0]])
    other = torch.tensor([[0.0, 0.0], [0.0, 0.0], [9.0, -9.0], [0.0, 0.0]])
    labels = torch.tensor([0, 1, 0, 1])
    # right with the task given: 1st, 3rd, 4th; the task is found for all but the 3rd
    found = accuracies([other, own], 1, labels, torch.tensor([1, 1, 0, 1]))
    assert found == {TIL: 0.75, CIL: 0.5, TASK: 0.75}


def lines(matrix):
    names = ["a", "b", "c"]
    return [
        Score("run", "eft", 0, names[i], names[j], TIL, value, 100) for (i, j), value in matrix.items()
    ]  # fmt: skip


MATRIX = {(0, 0): 0.9, (1, 0): 0.7, (1, 1): 0.8, (2, 0): 0.5, (2, 1): 0.9, (2, 2): 0.6}


def test_matrix_average_and_forgetting():
    matrix = accuracy_matrix([*lines(MATRIX), Score("run", "eft", 0, "a", "a", CIL, 0.1, 1)], ["a", "b", "c"])
    assert matrix == MATRIX
    assert average_over_seen(matrix, 2) == pytest.approx(2 / 3)
    assert forgetting(matrix, 0) == 0
    assert forgetting(matrix, 2) == pytest.approx((0.4 - 0.1) / 2)
