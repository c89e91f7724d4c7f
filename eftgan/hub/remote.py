"""A repository on the Hugging Face Hub: fetch some of its files, or write all of them in one commit.

Tokens, caches and retries are huggingface_hub's own; its many exceptions become one clear line each.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from eftgan.errors import UserError

PREFIX = "hf:"  # before a repository where a run's folder may stand as well
NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>\S+))?", re.ASCII)
NETWORK_LIBRARIES = ("httpx2", "httpx", "httpcore", "requests", "urllib3")  # whichever huggingface_hub stands on
MOST_SHOWN = 300  # characters of a server's answer that are shown


@dataclass(frozen=True)
class HubRepo:
    """A repository of models, at its newest state or at a branch, tag or commit."""

    name: str  # USER/NAME
    revision: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)  # none: as `hf auth login` or HF_TOKEN say

    @classmethod
    def parse(cls, given: str, revision: str | None = None, token: str | None = None) -> Self:
        """USER/NAME or USER/NAME@REVISION, with hf: before it or not."""
        found = NAME.fullmatch(given.removeprefix(PREFIX))
        if found is None:
            raise UserError(f"{given!r} is not the name of a repository on the Hub; give USER/NAME")
        return cls(found["name"], revision or found["revision"], token)

    def fetch(self, patterns: Sequence[str]) -> Path:
        """Bring files of these names or patterns into the local cache; the folder that they are in."""
        from huggingface_hub import snapshot_download

        with self._explained():
            found = snapshot_download(
                self.name,
                revision=self.revision,
                allow_patterns=list(patterns),
                token=self.token,
                endpoint=endpoint(),
                library_name="eftgan",
            )
        return Path(found)

    def at(self, folder: Path) -> Self:
        """The same at the commit that a folder was fetched from, whatever is pushed meanwhile."""
        return dataclasses.replace(self, revision=folder.name)

    def push(self, files: Mapping[str, bytes | Path], message: str, *, private: bool = False) -> str:
        """Write the files in one commit; files of weights that an earlier push left there go. Returns the address."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

        api = HfApi(endpoint=endpoint(), token=self.token, library_name="eftgan")
        with self._explained():
            url = api.create_repo(self.name, private=private or None, exist_ok=True)
            info = api.model_info(self.name, revision=self.revision)
            if private and not info.private:
                raise UserError(f"{self.name} is there already and public; make it private on its page {url} first")
            there = [file.rfilename for file in info.siblings or []]
            stale = [path for path in there if path.endswith(".safetensors") and path not in files]
            adding = [CommitOperationAdd(path, content) for path, content in files.items()]
            removing = [CommitOperationDelete(path) for path in stale]
            api.create_commit(self.name, [*adding, *removing], commit_message=message, revision=self.revision)
        return str(url)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            if (line := self._explain(error)) is None:
                raise
            raise UserError(line) from error

    def _explain(self, error: Exception) -> str | None:
        """What went wrong, in one line; none where it is not about the Hub."""
        from huggingface_hub import errors

        host, at = endpoint() or "the Hub", f" at {self.revision}" if self.revision else ""
        if isinstance(error, errors.GatedRepoError):
            return f"{self.name}: its owner must grant access first; ask for it on its page"
        if isinstance(error, errors.RevisionNotFoundError):
            return f"{self.name}: no branch, tag or commit {self.revision!r} in it"
        if isinstance(error, errors.RepositoryNotFoundError):
            return (
                f"{self.name}: no such repository on {host}, or it is private and you are not logged in; "
                "check the name, or log in with: hf auth login"
            )
        if isinstance(error, errors.HfHubHTTPError):
            return self._answer(error.response.status_code, host, str(error))
        offline = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)
        if isinstance(error, offline) or type(error).__module__.partition(".")[0] in NETWORK_LIBRARIES:
            return (
                f"{self.name}{at}: {host} cannot be reached, and what is wanted of it is not in the local cache; "
                "check the connection, HF_ENDPOINT and HF_HUB_OFFLINE"
            )
        if isinstance(error, errors.HFValidationError | errors.LocalTokenNotFoundError | ValueError | RuntimeError):
            return f"{self.name}: {_one_line(str(error))}"
        return None

    def _answer(self, status: int, host: str, text: str) -> str:
        if status == 401:
            return f"{self.name}: {host} wants to know who you are; log in with: hf auth login"
        if status == 403:
            return f"{self.name}: {host} does not let you do this; a token with the right to write there is needed"
        return f"{self.name}: {host} answered: {_one_line(text)}"


def endpoint() -> str | None:
    """The Hub's address where another one than usual is set, as it is now: the library reads it once, when imported."""
    return (os.environ.get("HF_ENDPOINT") or "").rstrip("/") or None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MOST_SHOWN]
