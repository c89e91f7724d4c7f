"""Metrics by name: what `--metrics` asks for, what a score line is about, and what is measured together."""

import difflib

from eftgan.errors import UserError
from eftgan.evaluation.metrics import METRICS, Metric
from eftgan.evaluation.metrics.neighbours import NeighbourMetric

MOST_NEIGHBOURS = 100


def metrics_named(words: str) -> list[Metric]:
    """The metrics that a list like "fid,prdc,recall-k10" asks for, each once, in its order."""
    found: dict[str, Metric] = {}
    for word in (word.strip() for word in words.split(",")):
        asked = _asked_for(word.lower())
        if not asked:
            raise _unknown(word)
        found |= {metric.name: metric for metric in asked}
    return list(found.values())


def metric_named(name: str) -> Metric | None:
    """The metric of a score line; none where it is not known."""
    return METRICS.get(name) or {metric.name: metric for metric in _asked_for(name.lower())}.get(name)


def by_features(metrics: list[Metric]) -> dict[str, list[Metric]]:
    """The metrics by what they are measured on: these share the work of a network."""
    kinds = dict.fromkeys(metric.features for metric in metrics if metric.features)
    return {kind: [metric for metric in metrics if metric.features == kind] for kind in kinds}


def most_images_over(kind: str) -> int | None:
    """How many images the metrics over one kind of features look at; none: all there are."""
    limits = [metric.most_images for metric in METRICS.values() if metric.features == kind]
    return None if not limits or None in limits else max(limit for limit in limits if limit)


def names_to_ask_for() -> list[str]:
    """What `--metrics` takes."""
    measured = [metric for metric in METRICS.values() if metric.features]
    names = [metric.name.lower() for metric in measured]
    return list(dict.fromkeys(names + [metric.group for metric in measured if metric.group]))


def _asked_for(word: str) -> list[Metric]:
    found = [m for m in METRICS.values() if m.features and word and word in (m.name.lower(), m.group)]
    base, _, digits = word.rpartition("-k")
    k = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 4 else 0
    if found or not base or not 0 < k <= MOST_NEIGHBOURS:
        return found
    return [metric.with_neighbours(k) for metric in _asked_for(base) if isinstance(metric, NeighbourMetric)]


def _unknown(word: str) -> UserError:
    known = names_to_ask_for()
    near = difflib.get_close_matches(word.lower(), known, 1, 0.5)
    hint = f"did you mean {near[0]}? There" if near else "there"
    return UserError(f"--metrics: no metric {word[:60]!r}; {hint} are: {', '.join(known)}")
