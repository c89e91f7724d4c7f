"""What mkdocs calls: pages that are made at build time, the order of pages, and links that lead out of docs/."""

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import links  # noqa: E402
import navigation  # noqa: E402
import reference  # noqa: E402
import source  # noqa: E402

import eftgan  # noqa: E402

_CODE = re.compile(r"(<code>)([^<]{12,})(</code>)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.copyright = f"eftgan {eftgan.__version__}, MIT licence"
    config.nav = navigation.expand(config.nav or [], sorted(page.as_posix() for page in written_pages(config)))
    return config


def written_pages(config: MkDocsConfig) -> list[Path]:
    """Pages that lie in docs/."""
    docs = Path(config.docs_dir)
    return [path.relative_to(docs) for path in docs.rglob("*.md") if HERE not in path.parents]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    made = {page: (links.ROOT / file).read_text(encoding="utf-8") for file, page in links.PAGES.items()}
    for page, text in {**made, **reference.pages()}.items():
        files.append(File.generated(config, page, content=text))
    shown = {
        path for file in files.documentation_pages() for path in links.shown_files(file.content_string, file.src_uri)
    }
    for path, text in source.pages(shown).items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]  # beside the front page it would only say "Home"
    return markdown if uri.startswith((links.SOURCE, "reference/")) else links.rewrite(markdown, uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Long names in the cells of tables may break behind their parts, so that a table is not as wide as its names."""
    return re.sub(r"<td.*?</td>", lambda cell: _CODE.sub(_breakable, cell[0]), html, flags=re.DOTALL)


def _breakable(code: re.Match[str]) -> str:
    return code[1] + re.sub(r"(?<=[A-Za-z0-9])([_./])", r"\1<wbr>", code[2]) + code[3]
