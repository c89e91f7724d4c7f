"""The one exception that a user's mistake raises; entry points print it and exit with code 2."""

import contextlib
import sys
from collections.abc import Iterator


class UserError(Exception):
    """Something the user can put right. The message names the file, key or task, and the remedy."""


@contextlib.contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Turn a UserError into one line on stderr and exit code 2, without a traceback."""
    try:
        yield
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
