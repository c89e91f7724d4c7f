"""The server of the page: on loopback, with nothing from elsewhere."""

import re
import socket
import sys
import urllib.request

import pytest

from eftgan.commands import main

gradio = pytest.importorskip("gradio")


@pytest.fixture(scope="module")
def address(gan):
    from eftgan.demo.serve import start

    page, address = start(gan)
    yield address
    page.close(verbose=False)


def test_the_page_is_on_loopback_and_the_browser_may_fetch_nothing_from_elsewhere(address):
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/?", address)
    with urllib.request.urlopen(address) as answer:
        policy, page = answer.headers["content-security-policy"], answer.read().decode()
    assert "default-src 'self'" in policy
    assert not re.search(r"https?://|\*", policy)
    assert re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//', page) == []
    assert "fonts.googleapis" not in page


def test_the_api_is_not_offered(address):
    with urllib.request.urlopen(f"{address.rstrip('/')}/gradio_api/info") as answer:
        assert answer.read().decode().count('"/') == 0


def test_a_port_in_use_is_one_clear_line(gan, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as ended:
            main(["demo", str(gan), "--port", str(port)])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: --port {port} on 127.0.0.1 cannot be used (Address already in use)")
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}", "--port", "70000"], "--port 70000: ports go from 1 to 65535"),
        (["{run}", "--host", "192.0.2.1"], "on 192.0.2.1 cannot be used"),
        (["nowhere"], "nowhere: no run there (config.yaml is missing)"),
    ],
)
def test_other_mistakes_are_one_clear_line_too(gan, words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["demo", *(word.replace("{run}", str(gan)) for word in words)])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_without_gradio_the_remedy_is_named(gan, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(["demo", str(gan)])
    assert ended.value.code == 2
    assert "pip install 'eftgan[demo]'" in capsys.readouterr().err
