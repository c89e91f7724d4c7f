"""A built site is whole and needs no other: `python docs/site/check.py build/site`.

mkdocs checks links between pages of Markdown; this reads what it wrote: every link and anchor inside the site exists,
and nothing is loaded from elsewhere, so that it opens offline.
"""

import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}


class PageParts(HTMLParser):
    """The anchors, links and loaded files of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.anchors |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "dns-prefetch"):
            self.loaded.add(given["href"])
        elif tag in LOADING and given.get(LOADING[tag]):
            self.loaded.add(given[LOADING[tag]])


def problems(site: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {path.relative_to(site).as_posix(): PageParts(path.read_text("utf-8")) for path in site.rglob("*.html")}
    found = []
    for page, parts in pages.items():
        for address in parts.links | parts.loaded:
            split = urlsplit(address)
            if split.scheme or split.netloc:
                found += [f"{page}: loads {address}"] * (address in parts.loaded and split.scheme != "data")
                continue
            inside = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(split.path)))
            target = page if not split.path else inside
            if page == "404.html":  # is served under any address, so that its links are absolute
                continue
            if not (site / target).is_file():
                found.append(f"{page}: no file for {address}")
            elif split.fragment and target in pages and unquote(split.fragment) not in pages[target].anchors:
                found.append(f"{page}: no anchor for {address}")
    for style in site.rglob("*.css"):
        found += [
            f"{style.name}: loads {url}" for url in re.findall(r"url\([\"']?(https?:[^)]+)\)", style.read_text("utf-8"))
        ]
    return sorted(found) if pages else [f"{site}: no pages"]


if __name__ == "__main__":
    found = problems(Path(sys.argv[1]))
    print("\n".join(found) or "the site: every link leads somewhere, nothing is loaded from elsewhere")
    sys.exit(bool(found))
