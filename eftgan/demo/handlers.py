"""What the functions behind a page's controls have in common."""

import functools
from collections.abc import Callable
from typing import Any

import gradio as gr

from eftgan.errors import UserError


def answering(show: Callable[..., Any]) -> Callable[..., Any]:
    """The function, a user's mistake shown as a message on the page: a file that is gone, say."""

    @functools.wraps(show)
    def answer(*given: Any) -> Any:
        try:
            return show(*given)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from error

    return answer
