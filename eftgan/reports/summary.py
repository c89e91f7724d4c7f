"""The report's first words: what was trained and what came out, for a reader who does not know the code."""

import math
import shlex

from eftgan.evaluation.metrics import Metric
from eftgan.reports.numbers import percent
from eftgan.reports.results import Result, Study

NBSP = "\N{NO-BREAK SPACE}"
OLD_NOUNS = {"gan": "image generator", "classifier": "classifier"}  # where run.json does not say what was trained
OLD_SUBJECTS = {"gan": "A generative adversarial network", "classifier": "A classifier"}


def title(studies: list[Study]) -> str:
    """The page's heading."""
    nouns = {_noun(study) or OLD_NOUNS.get(study.kind, "network") for study in studies}
    subject = nouns.pop() if len(nouns) == 1 else "network"
    most = max(len(study.tasks) for study in studies)
    return f"One {subject}, {most} tasks in a row" if most > 1 else f"One {subject}, one task"


def lead(studies: list[Study]) -> str:
    """What the report is made from."""
    lines = sum(len(run.scores) for study in studies for run in study.runs)
    runs = sum(len(study.runs) for study in studies)
    return f"Continual learning report, made from {lines} score lines of {runs} run{'s' * (runs > 1)}."


def paragraphs(study: Study) -> list[str]:
    """The summary of a study, a few plain sentences; where classifiers are asked in several ways, a paragraph each."""
    settings = settings_of(study)
    if len(settings) < 2:
        outcome = [] if study.main is None else _outcome(study, study.main)
        return [" ".join(filter(None, [_what(study), *outcome, *_growth(study)]))]
    each = [
        " ".join(filter(None, [f"{metric.setting.capitalize()}.", *_outcome(study, metric)])) for metric in settings
    ]
    return [_what(study), *each, *_growth(study)]


def settings_of(study: Study) -> list[Metric]:
    """The metrics that ask the same classifier in different ways, what shows forgetting alone first."""
    return [metric for metric in reversed(study.metrics) if metric.setting]


def caution(study: Study) -> str | None:
    """A warning where the main metric is only a stand-in for FID, and what to do about it."""
    command = shlex.join(["eftgan", "evaluate", str(study.runs[0].folder.path)])
    warning = stand_in(study)
    return warning and f"{warning} For FID run: {command}"


def stand_in(study: Study) -> str | None:
    """The warning alone."""
    if study.main is None or study.main.features != "random":
        return None
    return (
        f"{study.main.name} is a quick stand-in over a fixed random network. It is not FID and cannot be compared with "
        "published figures."
    )


def _what(study: Study) -> str:
    noun = _noun(study)
    what = f"{_article(noun)} {noun}" if noun else OLD_SUBJECTS.get(study.kind, "A network")
    count = len(study.tasks)
    order = sequence(study)
    seeds = len({run.seed for run in study.runs})
    methods = _join(study.labels)
    tasks = f"{count} tasks, one after another ({order})" if count > 1 else f"one task ({order})"
    with_seeds = f", with {seeds} seeds" if seeds > 1 else ""
    return f"{what} learned {tasks}, by {methods}{with_seeds}."


def sequence(study: Study) -> str:
    """The tasks in order, the first and the last where there are many."""
    tasks = study.tasks
    return " → ".join(tasks) if len(tasks) <= 6 else f"{tasks[0]} → … → {tasks[-1]}"


def _noun(study: Study) -> str | None:
    """What was trained, in the words of its runs, if they agree."""
    nouns = {run.noun for run in study.runs}
    return nouns.pop() if len(nouns) == 1 else None


def _article(noun: str) -> str:
    return "An" if noun[0].lower() in "aeiou" else "A"


def _outcome(study: Study, metric: Metric) -> list[str]:
    results = study.results(metric)
    finals = [(result.label, result.final) for result in results if result.final]
    if not finals:
        return [f"The evaluation is not complete: {metric.name} is missing for some tasks at the end."]
    metric = results[0].metric
    shown = [
        f"{metric.text(final.mean, final.std).replace(' ', NBSP)}{metric.unit} for {label}" for label, final in finals
    ]
    after = "After the last task the average over all tasks is" if len(study.tasks) > 1 else "The result is"
    return [
        *([f"{metric.explanation}; {metric.direction}."] if metric.explanation else []),
        f"{after} {_join(shown)}.",
        *([_forgetting(metric, [result for result in results if result.final])] if len(study.tasks) > 1 else []),
    ]


def _forgetting(metric: Metric, results: list[Result]) -> str:
    fates: dict[str, list[str]] = {}  # what became of earlier tasks -> with which methods
    for result in results:
        if result.forgetting is not None and math.isfinite(result.forgetting.mean):
            fates.setdefault(_fate(metric, result.forgetting.mean), []).append(result.label)
    phrases = [f"with {_join(labels)} {fate}" for fate, labels in fates.items()]
    return f"Forgetting of earlier tasks: {'; '.join(phrases)}." if phrases else ""


def _fate(metric: Metric, forgetting: float) -> str:
    if forgetting == 0:
        return "earlier tasks stay exactly as they were when learned"
    amount = forgetting * metric.scale
    if abs(amount) < 0.5 * 10**-metric.digits:
        return "earlier tasks stay as they were when learned"
    points = " points" if metric.unit == " %" else f" {metric.name}"
    return f"they end {metric.text(abs(forgetting))}{points} {'worse' if amount > 0 else 'better'}"


def _growth(study: Study) -> list[str]:
    growth = study.growth()
    grown = [f"{percent(max(item.adapters))} ({item.label})" for item in growth if max(item.adapters) > 0]
    whole = [item.label for item in growth if item.whole_networks]
    return [
        *([f"Each further task adds adapters of {_join(grown)} of the base network's parameters."] if grown else []),
        *([f"With {_join(whole)} every task has a whole network of its own."] if whole else []),
    ]


def _join(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
