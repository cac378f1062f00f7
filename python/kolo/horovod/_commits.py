"""Where the commits of an elastic job are kept, so that torchrun can start all ranks again from the last one."""

from __future__ import annotations

import os
import pathlib
import re
import tempfile
from typing import Any

import torch

from ._job import current

VARIABLE = "KOLO_COMMITS"


class Commits:
    """The file of the last commit. Only rank 0 touches it. Errors: OSError."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def read(self) -> Any:
        """What was written last; None: nothing."""
        return torch.load(self._path, weights_only=False) if self._path.exists() else None

    def write(self, content: Any) -> None:
        """Under its name there is a whole commit or none, whenever the process is killed."""
        draft = self._path.with_suffix(".draft")
        with open(draft, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._path)

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


def commits_of_job() -> Commits | None:
    """KOLO_COMMITS names their folder, which every node sees. Without it, a job on one node under torchrun has one of
    its own, as long as its agent lives. None: nobody would start the ranks again.

    Errors: ValueError that asks for KOLO_COMMITS; OSError.
    """
    named = os.environ.get(VARIABLE)
    if named:
        folder = pathlib.Path(named)
        folder.mkdir(parents=True, exist_ok=True)
        return Commits(folder / "commit.pt")
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    if run is None or os.environ.get("TORCHELASTIC_MAX_RESTARTS") == "0":
        return None
    if current().runtime.num_nodes > 1:
        raise ValueError(f"on several nodes, {VARIABLE} names a folder for commits that all of them see")
    # The agent is the parent: other jobs of this name have another one.
    return Commits(_private_folder() / f"{re.sub(r'[^A-Za-z0-9]', '_', run)}-{os.getppid()}.pt")


def _private_folder() -> pathlib.Path:
    """Commits are unpickled, so nobody else may write there."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"kolo-commits-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ValueError(f"others may write to {folder}; {VARIABLE} names another folder for commits")
    return folder
