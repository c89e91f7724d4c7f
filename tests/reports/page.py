"""A report read back: its tables, pictures and words."""

from html.parser import HTMLParser

from eftgan.reports import write_report

VOID = {"meta", "img", "br", "link"}
SVG_VOID = {"rect", "line", "circle", "polyline", "polygon"}


class Page(HTMLParser):
    """Checks nesting, and gathers tables, images and labels."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open, self.images, self.svgs, self.links, self.tables, self.captions = [], [], [], [], [], []
        self.text = ""
        self._cell = None
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.links += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag == "img":
            self.images.append(attributes)
        elif tag == "svg":
            self.svgs.append(attributes)
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self._cell = ""
        elif tag == "caption":
            self.captions.append("")

    def handle_startendtag(self, tag, attributes):
        assert tag in SVG_VOID

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in {"td", "th"}:
            self.tables[-1][-1].append(self._cell)
            self._cell = None

    def handle_data(self, data):
        self.text += data
        if self._cell is not None:
            self._cell += data
        if self.open and "caption" in self.open:
            self.captions[-1] += data

    def table(self, start: str) -> list[list[str]]:
        return next(t for t, caption in zip(self.tables, self.captions, strict=True) if caption.startswith(start))


def report(runs, tmp_path) -> Page:
    out = tmp_path / "report" / "report.html"
    write_report(runs, out)
    return Page(out.read_text())
