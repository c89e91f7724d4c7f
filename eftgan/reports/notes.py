"""The notes under a table of scores: what the values are based on, and what to be careful about."""

from eftgan.evaluation.metrics import Metric
from eftgan.names import AUTO
from eftgan.reports.numbers import extent
from eftgan.reports.results import MOST_SHOWN, Result, Study
from eftgan.scores import UNCHANGED, Score

CARRIED, FEWER = "†", "‡"  # marks behind a value


def score_notes(study: Study, metric: Metric, results: list[Result]) -> list[str]:
    """The notes of one metric's table, in the order in which they are printed."""
    scores = [score for result in results for seed in result.seeds for score in seed.values()]
    said = [score for run in study.runs for score in run.scores if score.metric == UNCHANGED]
    notes = [
        _explanation(study, metric),
        _behind(scores),
        _inferred(metric, results),
        _held_out(study),
        chosen_on_test(results),
        _spread(results, scores),
        _carried([*scores, *said]),
        _fewer(scores, most_samples(results)),
        _extractors(scores),
        _floor(study, results[0].metric),
        _different_n(metric, scores),
        _different_references(study, metric),
    ]
    return [note for note in notes if note]


def most_samples(results: list[Result]) -> int:
    """The largest N of a table of generated images; 0 for other metrics, where nobody chooses N."""
    if results[0].metric.features is None:
        return 0
    return max(score.n for result in results for seed in result.seeds for score in seed.values())


def _explanation(study: Study, metric: Metric) -> str:
    """None for the main metric: the summary explains it."""
    is_main = study.main is not None and study.main.name == metric.name
    return f"{metric.explanation}." if metric.explanation and not is_main else ""


def _behind(scores: list[Score]) -> str:
    real = {count for score in scores if (count := _real_images(score)) is not None}
    against = f", compared with {extent(real)} real images" if real else ""
    return f"N = {extent({score.n for score in scores})} samples behind each value{against}."


def _inferred(metric: Metric, results: list[Result]) -> str:
    """The rules by which tasks were inferred, unless all are the default."""
    rows: dict[str, list[str]] = {}
    for result in results if metric.by_rule else []:
        for rule in sorted({str(name or AUTO) for name in _details(result, "inference")}):
            rows.setdefault(rule, []).append(result.label)
    if set(rows) <= {AUTO}:
        return ""
    if len(rows) == 1:
        return f"The task of an image is inferred by the rule {next(iter(rows))}."
    named = "; ".join(f"{rule} ({', '.join(labels)})" for rule, labels in rows.items())
    return f"The task of an image is inferred by different rules: {named}."


def _held_out(study: Study) -> str:
    shares = {run.info["held_out"] for run in study.runs if isinstance(run.info.get("held_out"), float)}
    if not shares:
        return ""
    said = ", ".join(f"{share:.0%}" for share in sorted(shares))
    return f"Measured on the {said} of the training images that were held out of training, not on test images."


def chosen_on_test(results: list[Result]) -> str:
    """A warning where an epoch was kept because it was the best on the very images of the scores."""
    chosen = [result.label for result in results if "test" in _details(result, "selection")]
    if not chosen:
        return ""
    return (
        f"Caution: the epochs of {', '.join(chosen)} were chosen on the images that are measured here "
        "(training.selection=test), so these values are too good."
    )


def _spread(results: list[Result], scores: list[Score]) -> str:
    if max(len(result.seeds) for result in results) > 1:
        return "Mean ± sample standard deviation over seeds."
    within = any(score.details.get("std") is not None for score in scores)
    return "± standard deviation over random subsets of the images." if within else ""


def _carried(scores: list[Score]) -> str:
    if not any(score.details.get("carried") or score.metric == UNCHANGED for score in scores):
        return ""
    return f"{CARRIED} carried over: the task's digest proves it unchanged, so it was not measured again."


def _fewer(scores: list[Score], most: int) -> str:
    fewer = {score.n for score in scores if score.n < most}
    return f"{FEWER} fewer samples: N = {extent(fewer)}." if fewer else ""


def _extractors(scores: list[Score]) -> str:
    extractors = {str(score.details["extractor"]) for score in scores if score.details.get("extractor")}
    return f"Features: {', '.join(sorted(extractors))}." if extractors else ""


def _floor(study: Study, metric: Metric) -> str:
    floor = study.floor(metric)
    meaning = "the floor" if metric.lower_is_better else "what a perfect generator would reach"
    if len(floor) > MOST_SHOWN:
        values = [score.value for score in floor.values()]
        least, most = metric.text(min(values)), metric.text(max(values))
        return f"Real images against real images, {meaning}: {least} to {most} over {len(values):,} tasks."
    shown = []
    for task, score in floor.items():
        real = _real_images(score)
        against = "" if real is None else f" against {real:,}"
        shown.append(f"{task} {metric.text(score.value)} (N = {score.n:,}{against})")
    return f"Real images against real images, {meaning}: {', '.join(shown)}." if shown else ""


def _different_n(metric: Metric, scores: list[Score]) -> str:
    if not metric.depends_on_n or len({score.n for score in scores}) == 1:
        return ""
    changes = "falls as N grows" if metric.lower_is_better else "changes with N"
    return f"Caution: {metric.name} {changes}, so values of different N cannot be compared."


def _different_references(study: Study, metric: Metric) -> str:
    references: dict[str, set[str]] = {}
    for run in study.runs:
        for score in run.scores:
            of_model = score.metric == metric.name and score.trained_through in study.tasks
            if of_model and score.details.get("reference"):
                references.setdefault(score.tested_on, set()).add(str(score.details["reference"]))
    mixed = [task for task, found in references.items() if len(found) > 1]
    return f"Caution: the methods were measured against different real images for {', '.join(mixed)}." if mixed else ""


def _details(result: Result, key: str) -> set[object]:
    """What the lines of a row say about one thing; none where one does not say it."""
    return {score.details.get(key) for seed in result.seeds for score in seed.values()}


def _real_images(score: Score) -> int | None:
    """How many real images the value was measured against, if the line says so."""
    count = score.details.get("reference_n")
    return count if isinstance(count, int) else None
