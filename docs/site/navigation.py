"""The order of pages: mkdocs.yml names the sections and what must come first, patterns stand for the rest."""

from fnmatch import fnmatch
from typing import Any


def expand(nav: list[Any], pages: list[str]) -> list[Any]:
    """The order with every pattern (results/*.md) replaced by those of the pages that are named nowhere else."""
    named = set(_entries(nav))

    def expanded(entries: list[Any]) -> list[Any]:
        result: list[Any] = []
        for entry in entries:
            if isinstance(entry, dict):
                ((title, below),) = entry.items()
                result.append({title: expanded(below) if isinstance(below, list) else below})
            elif "*" in entry:
                beside = (page for page in pages if page.count("/") == entry.count("/"))
                result += [page for page in beside if fnmatch(page, entry) and page not in named]
            else:
                result.append(entry)
        return result

    return expanded(nav)


def _entries(nav: list[Any]) -> list[str]:
    flat: list[str] = []
    for entry in nav:
        below = next(iter(entry.values())) if isinstance(entry, dict) else entry
        flat += _entries(below) if isinstance(below, list) else [below]
    return flat
