"""Pages that show files of the repository, so that links to code work on the site, offline and without a host."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from links import ROOT, SOURCE

LANGUAGES = {".py": "python", ".yaml": "yaml", ".cff": "yaml", ".toml": "toml", ".sh": "bash", ".json": "json"}
_HEAD = "---\ntitle: {}\nsearch: {{exclude: true}}\nhide: [toc]\n---\n\n"  # search what is said about the code, not it


def pages(paths: Iterable[str]) -> dict[str, str]:
    """A page for every file and folder, and for the files in those folders."""
    wanted = set(paths)
    for folder in [path for path in wanted if (ROOT / path).is_dir()]:
        wanted |= {f"{folder}/{name}" for name in _listing(folder)}
    return {f"{SOURCE}{path}.md": _HEAD.format(path) + _page(path) for path in sorted(wanted)}


def _page(path: str) -> str:
    if (ROOT / path).is_dir():
        last = PurePosixPath(path).name
        return f"# `{path}/`\n\n" + "\n".join(f"- [`{name}`]({last}/{name}.md)" for name in _listing(path))
    text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
    language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f"# `{path}`\n\n~~~~~~ {{ .{language} .no-copy }}\n{text}\n~~~~~~\n"


def _listing(folder: str) -> list[str]:
    """Names of the text files in a folder that belong to the project."""
    names = (entry.name for entry in (ROOT / folder).iterdir() if entry.is_file())
    return sorted(name for name in names if PurePosixPath(name).suffix in LANGUAGES)
