"""The one exception that a user's mistake raises; entry points print it and exit with code 2."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator


class UserError(Exception):
    """Something the user can put right. The message names the file, key or task, and the remedy."""


@contextlib.contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Turn a UserError, or a file that the system refuses, into one message on stderr and exit code 2.

    Ctrl-C is a message too, with the code that shells give it, however early it comes: much is imported first.
    """
    try:
        yield
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":
            print("\ninterrupted; what was written before is whole: run the same command again", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except UserError as error:
        _stop(str(error))
    except OSError as error:
        if error.filename is None:  # not about a file: a fault of the program or of the network
            raise
        _stop(f"{error.filename}: {error.strerror}")


def _stop(message: str) -> None:
    rank = os.environ.get("RANK", "0")
    print(f"error: {message}" if rank == "0" else f"error in process {rank}: {message}", file=sys.stderr)
    _tell_launcher(message)
    sys.exit(2)


def _tell_launcher(message: str) -> None:
    """Write the file from which torchrun's summary of a failed process takes the reason."""
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        told = {"message": message, "extraInfo": {"timestamp": str(int(time.time()))}}
        with contextlib.suppress(OSError), open(path, "w") as file:
            json.dump({"message": told}, file)
