"""A page to play with a run: `eftgan demo RUN`. `page`, `gan`, `classifier`, `handlers` and `serve` need Gradio."""

import importlib.util
import os

from eftgan.errors import UserError

# Before anyone imports Gradio, which reads them then: it is to report to nobody and to keep nothing.
os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_RUN_HISTORY": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}


def require_gradio() -> None:
    """Refuse with a remedy where the package is not installed."""
    if importlib.util.find_spec("gradio") is None:
        raise UserError("the page needs the package gradio; install it with: pip install 'eftgan[demo]'")
