"""The server of a page: this machine alone unless told otherwise, and nothing from elsewhere."""

import socket
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import gradio as gr

from eftgan.demo.page import build_page
from eftgan.demo.runs import open_runs
from eftgan.demo.style import CSS, FONTS, MONO
from eftgan.errors import UserError

# Whatever a version of Gradio, or a browser, would fetch from elsewhere is refused by the browser itself.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; connect-src 'self'; "
    "frame-src 'none'; object-src 'none'"
)
Message = MutableMapping[str, Any]


class OwnContentOnly:
    """ASGI middleware that sends the policy with every answer."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"content-security-policy", POLICY.encode())]
            await send(message)

        await self.app(scope, receive, with_policy)


def start(path: Path, *, host: str = "127.0.0.1", port: int = 0, share: bool = False) -> tuple[gr.Blocks, str]:
    """Serve the page of a run folder in the background; returns it and its address. Port 0: any that is free."""
    from starlette.middleware import Middleware

    runs = open_runs(path)
    page, port = build_page(path, runs), free_port(host, port)
    theme = gr.themes.Base(primary_hue="sky", neutral_hue="slate", font=FONTS, font_mono=MONO, radius_size="sm")
    readable = {"body_text_color_subdued": "*neutral_500", "block_info_text_color": "*neutral_500"}
    theme = theme.set(**readable, **{f"{name}_dark": "*neutral_400" for name in readable})
    _, address, public = page.launch(
        server_name=host,
        server_port=port,
        share=share,
        prevent_thread_lock=True,
        quiet=True,
        inbrowser=False,
        show_error=True,
        footer_links=[],
        ssr_mode=False,
        pwa=False,
        theme=theme,
        css=CSS,
        app_kwargs={"middleware": [Middleware(OwnContentOnly)], "docs_url": None, "redoc_url": None},
    )
    return page, public or address


def free_port(host: str, port: int) -> int:
    """The port itself, or one that is free for 0; a UserError where another program has it."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OverflowError as error:
        raise UserError(f"--port {port}: ports go from 1 to 65535") from error
    except OSError as error:
        remedy = "choose another with --port, or 0 for any that is free"
        raise UserError(f"--port {port} on {host} cannot be used ({error.strerror}); {remedy}") from error


def serve(path: Path, *, host: str, port: int, share: bool) -> None:
    """Serve until interrupted."""
    page, address = start(path, host=host, port=port, share=share)
    print(f"{path}: {address}\nCtrl+C ends it", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("\nclosed", file=sys.stderr)
    finally:
        page.close(verbose=False)
