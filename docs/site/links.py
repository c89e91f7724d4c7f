"""Where a link of the repository leads on the site: one source of every text, whichever way it is read.

A link is relative to the file that it stands in, as on a code host. On the site README.md is the front page, and a file
outside docs/ (source, test, config) has a page that shows it, so links need no host and fit the version of the site.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
MACHINERY = "docs/site/"  # no pages
SOURCE = "source/"  # on the site: pages that show files
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_TARGET = re.compile(r"(?<=\]\()[^)\s]+(?=\))|(?<=\]: )\S+$", re.MULTILINE)


def origin(page: str) -> str:
    """The file of the repository that a page of the site is made from."""
    return next((file for file, made in PAGES.items() if made == page), DOCS + page)


def shown_path(page: str) -> str | None:
    """The file or folder that a page shows; None for pages of text."""
    return page.removeprefix(SOURCE).removesuffix(".md") if page.startswith(SOURCE) else None


def site_page(path: str) -> str:
    """The page or picture of the site for a file or folder of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith(DOCS) and not path.startswith(MACHINERY):
        inside = path.removeprefix(DOCS)
        if not (ROOT / path).is_dir():
            return inside
        if (ROOT / path / "README.md").exists():
            return f"{inside}/README.md"
    return f"{SOURCE}{path}.md"


def rewrite(text: str, page: str) -> str:
    """The text of a page with every relative link as the site needs it."""
    here = origin(page)

    def moved(match: re.Match[str]) -> str:
        target, mark, anchor = match[0].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        return posixpath.relpath(site_page(path), posixpath.dirname(page) or ".") + mark + anchor

    return _outside_code(text, lambda prose: _TARGET.sub(moved, prose))


def shown_files(text: str, page: str) -> set[str]:
    """Files and folders that a page links to and that need a page to be shown on."""
    places: set[str] = set()

    def note(prose: str) -> str:
        for target in _TARGET.findall(prose):
            whole = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
            if path := shown_path(whole):
                places.add(path)
        return prose

    _outside_code(rewrite(text, page), note)
    return places


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """A document with its prose changed and its blocks of code as they are."""
    parts, end = [], 0
    for block in _CODE.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])
