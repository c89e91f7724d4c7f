"""The page in a real Chromium: clicks change pictures, and no request leaves this machine."""

import shutil
from urllib.parse import urlsplit

import pytest

pytest.importorskip("gradio")
api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium installed")

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
LONGEST_MS = 60_000  # a page that takes longer is broken


class Visitor:
    """A browser's tab that notes where its requests go and what goes wrong."""

    def __init__(self, browser, width: int = 1280) -> None:
        self.tab = browser.new_page(viewport={"width": width, "height": 900})
        self.tab.set_default_timeout(LONGEST_MS)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))

    def picture(self, place: str, not_this: str | None = None) -> str:
        """The picture in a place of the page, once it is another than one seen before."""
        wanted = self.tab.locator(f"{place} img").first
        if not_this is None:
            wanted.wait_for()
        else:
            script = "([place, old]) => { const i = document.querySelector(place + ' img'); return i && i.src !== old }"
            self.tab.wait_for_function(script, arg=[place, not_this])
        return wanted.get_attribute("src")

    def elsewhere(self) -> list[str]:
        own = ("127.0.0.1", None)  # None: data and blobs, which are in the page
        return [url for url in self.requests if urlsplit(url).hostname not in own]

    def fits(self) -> bool:
        """Whether the page is no wider than the screen."""
        return self.tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def serving():
    """Pages by folder, each started once."""
    from eftgan.demo.serve import start

    pages = []

    def address_of(folder) -> str:
        page, address = start(folder)
        pages.append(page)
        return address

    yield address_of
    for page in pages:
        page.close(verbose=False)


def test_clicks_change_the_picture_and_nothing_is_fetched_from_elsewhere(browser, serving, comparison):
    visitor = Visitor(browser)
    visitor.tab.goto(serving(comparison))
    first = visitor.picture("#drawn")
    visitor.tab.locator("#draw-task").get_by_text("checks", exact=True).click()
    checks = visitor.picture("#drawn", not_this=first)
    visitor.tab.locator("#draw-task").get_by_text("discs", exact=True).click()
    assert visitor.picture("#drawn", not_this=checks) == first
    visitor.tab.locator("#draw-another").click()
    another = visitor.picture("#drawn", not_this=first)
    visitor.tab.locator("#draw-strength input[type=number]").fill("0.5")
    visitor.tab.locator("#draw-strength input[type=number]").press("Enter")
    visitor.picture("#drawn", not_this=another)
    assert "--strength 0.5" in visitor.tab.locator("#drawn code").inner_text()
    visitor.tab.get_by_role("tab", name="Interpolate").click()
    assert visitor.picture("#way").startswith("data:image/webp")
    visitor.tab.get_by_role("tab", name="Before and after").click()
    visitor.picture("#history")
    assert visitor.tab.locator("#history h3").all_inner_texts() == ["Real images", "EFT", "Finetune"]
    assert len(visitor.requests) > 5
    assert (visitor.elsewhere(), visitor.errors) == ([], [])
    for width in (1280, 390):
        visitor.tab.set_viewport_size({"width": width, "height": 900})
        assert visitor.fits()


def test_a_dropped_picture_gets_its_task_and_class_also_on_a_phone(browser, serving, classes, tmp_path):
    from eftgan.demo.examiner import Examiner
    from eftgan.kinds import open_run

    examiner = Examiner(open_run(classes, "classifier"))
    image, _ = examiner.test_image()
    image.save(tmp_path / "dropped.png")
    answers, found = examiner.ask(image)
    visitor = Visitor(browser, width=390)
    visitor.tab.goto(serving(classes))
    visitor.tab.locator("#given input[type=file]").set_input_files(tmp_path / "dropped.png")
    answer = visitor.tab.locator("#said .answer")
    answer.wait_for()
    assert answer.locator("strong").inner_text() == answers[found].ranked[0][0]
    assert f"task {answers[found].task}" in answer.inner_text()
    assert visitor.tab.locator("#said li").count() == len(answers[found].ranked) + len(answers)
    visitor.tab.locator("#example").click()
    visitor.tab.locator("#known p").wait_for()
    assert visitor.tab.locator("#known").inner_text().startswith("This is a test image of task shapes-")
    assert (visitor.elsewhere(), visitor.errors) == ([], [])
    assert visitor.fits()
