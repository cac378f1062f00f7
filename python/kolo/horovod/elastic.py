"""Training that continues after a rank is lost: `horovod.torch.elastic`, with the restarts of torchrun.

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            ...
            state.commit()

    train(state)

    torchrun --nproc-per-node 4 --max-restarts 3 train.py

If a rank is lost, the other ranks get a HorovodInternalError, which ends their processes. torchrun starts all ranks
again, and `run` continues from the last commit. Commits are files; see `docs/horovod.md`.
"""

from __future__ import annotations

import copy
import functools
import os
import pathlib
import re
import tempfile
from typing import Any, Callable, Iterable, Iterator, Sized, TypeVar

import torch

from ._collectives import barrier
from ._functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from ._job import current, rank, size

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]


_Result = TypeVar("_Result")


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """Wraps `func(state, ...)` so that all ranks begin with the last commit or, without a commit, with the state of
    rank 0. Collective.

    Errors: errors of `func`. The process must then end, and the other ranks get a HorovodInternalError.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> _Result:
        state.attach(commits_of_job())
        result = func(state, *args, **kwargs)
        state.detach()
        return result

    return wrapper


# --- the file of the last commit, from which torchrun can start all ranks again ---------------------

VARIABLE = "KOLO_COMMITS"


class Commits:
    """The file of the last commit. Only rank 0 reads and writes it. Errors: OSError."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def read(self) -> Any:
        """Returns the last content written; None if there is none."""
        return torch.load(self._path, weights_only=False) if self._path.exists() else None

    def write(self, content: Any) -> None:
        """Replaces the file atomically, so that it is always complete or missing, even if the process is killed."""
        draft = self._path.with_suffix(".draft")
        with open(draft, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._path)

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


def commits_of_job() -> Commits | None:
    """Returns the commits of this job. KOLO_COMMITS names their folder, which all nodes must share. Without that
    variable, a job on one node under torchrun has a private folder for the lifetime of its agent. Returns None if no
    agent can start the ranks again.

    Errors: ValueError if KOLO_COMMITS is needed; OSError.
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
    # The parent process is the agent; its id differs between jobs with the same run id.
    return Commits(_private_folder() / f"{re.sub(r'[^A-Za-z0-9]', '_', run)}-{os.getppid()}.pt")


def _private_folder() -> pathlib.Path:
    """Returns a folder to which no other user may write, because commits are unpickled."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"kolo-commits-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ValueError(f"others may write to {folder}; {VARIABLE} names another folder for commits")
    return folder


# --- contents of a commit, and the state in which all ranks begin -----------------------------------


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Gives each rank its part of the samples of an epoch that no rank has processed yet, so that an epoch can continue
    with another number of ranks.

        sampler = hvd.elastic.ElasticSampler(dataset)
        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
        ...
        sampler.record_batch(batch_index, batch_size)      # after each step

    All ranks get equally many samples, so some samples of an epoch may occur twice.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: set[int] = set()
        """Samples that this rank has processed since the last `set_epoch` or `load_state_dict`, and those that the
        latter restored."""
        self.num_replicas = 0
        """Number of ranks, and this rank, at the last `reset`."""
        self.rank = 0
        self.remaining_indices: list[int] = []
        """Samples that were left for all ranks at the last `reset`, in the order of the epoch; `indices` are this
        rank's."""
        self.num_samples = 0
        """This rank's number of samples, and that of all ranks together."""
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch in which no sample has been processed."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    @property
    def processed_num(self) -> int:
        """The number of processed samples of the epoch, if all ranks have recorded as many as this rank."""
        here = len(self.processed_indices) - self._behind_at_reset
        return self._behind_at_reset + here * self.num_replicas

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that this rank has processed batch `batch_idx` of the iteration."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: Any) -> None:
        """Records that this rank has processed these samples."""
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Returns the samples of batch `batch_idx` of the iteration."""
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def reset(self) -> None:
        """Divides the remaining samples of the epoch among the ranks again."""
        self.num_replicas, self.rank = size(), rank()
        self._behind_at_reset = len(self.processed_indices)
        left = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        if self.shuffle:
            # All ranks shuffle with the same seed, and so alike.
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            left = [left[place] for place in torch.randperm(len(left), generator=generator, device="cpu").tolist()]
        self.remaining_indices = left
        self.num_samples = -(-len(left) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        places = range(self.rank, self.total_size, self.num_replicas)
        self.indices = [left[place % len(left)] for place in places]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self.indices))

    def __len__(self) -> int:
        return len(self.indices)


class State:
    """Base class of states, which `commit` saves, `restore` restores, and `sync` copies from rank 0 to all ranks."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        """The arguments are `hvd.broadcast_object` and `hvd.rank`, as in Horovod; derived classes may call them."""
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits: Commits | None = None  # Set by `run`.

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Adds functions to call when a job continues from a commit, perhaps with another number of ranks."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Saves the state in memory and, for ranks that torchrun starts again, on disk. Collective."""
        self.save()
        if self._commits is not None:
            content = self.content()
            if self._rank() == 0:
                self._commits.write(content)

    def check_host_updates(self) -> None:
        """Does nothing, because torchrun starts all ranks again when hosts come or go."""

    def attach(self, commits: Commits | None) -> None:
        """Used by `run`. Loads the last commit, if there is one, and copies the state of rank 0 to all ranks.
        Collective."""
        self._commits = commits
        content = commits.read() if commits is not None and self._rank() == 0 else None
        goes_on = broadcast_object(content is not None, name="elastic commit")
        if content is not None:
            self.load_content(content)
        self.sync()
        if goes_on:
            self.on_reset()

    def detach(self) -> None:
        """Used by `run`. Deletes the commits of a job that is done, which it is once all ranks are. Collective."""
        barrier()
        if self._commits is not None and self._rank() == 0:
            self._commits.forget()

    def content(self) -> Any:
        """Returns the content of a commit for all ranks; only rank 0 uses it. Collective."""
        raise NotImplementedError

    def load_content(self, content: Any) -> None:
        """Loads the content of a commit; called on rank 0."""
        raise NotImplementedError

    def save(self) -> None:
        """Saves the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restores the state that was last saved in memory."""
        raise NotImplementedError

    def sync(self) -> None:
        """Copies the state of rank 0 to all ranks, and saves it. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Called when a job continues, before the callbacks. Derived classes rebuild objects that depend on the number
        of ranks."""


class _Objects:
    """The attributes of a state with these names, as one part of the state."""

    def __init__(self, state: State, names: Iterable[str]) -> None:
        self._state = state
        self._names = tuple(names)

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self._state, name) for name in self._names}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self._state, name, value)


class ObjectState(State):
    """A state of objects that can be pickled; they are attributes: `ObjectState(hvd.broadcast_object, hvd.rank,
    epoch=0)`."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        objects = _Objects(self, kwargs)
        objects.load_state_dict(copy.deepcopy(kwargs))
        self._parts: dict[str, Any] = {"": objects}
        self._saved = {"": kwargs}

    def save(self) -> None:
        self._saved = {name: copy.deepcopy(part.state_dict()) for name, part in self._parts.items()}

    def restore(self) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(copy.deepcopy(self._saved[name]))

    def sync(self) -> None:
        for name, part in self._parts.items():
            if isinstance(part, torch.nn.Module):
                broadcast_parameters(part.state_dict(), 0)
            elif isinstance(part, torch.optim.Optimizer):
                broadcast_optimizer_state(part, 0)
            elif isinstance(part, ElasticSampler):
                part.load_state_dict(broadcast_object(_joined(part), name=name))
            elif objects := part.state_dict():
                part.load_state_dict(self._bcast_object(objects))
        self.save()

    def content(self) -> Any:
        joined = {name: _joined(part) for name, part in self._parts.items() if isinstance(part, ElasticSampler)}
        parts = {**self._saved, **joined}
        return {"objects": parts.pop(""), "parts": parts}

    def load_content(self, content: Any) -> None:
        parts = {**content.get("parts", {}), "": content["objects"]}
        for name, part in self._parts.items():
            part.load_state_dict(parts[name])


class TorchState(ObjectState):
    """A state of models, optimizers, samplers and objects, which are attributes with the names of the arguments:

        state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, epoch=0)
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"model": model, "optimizer": optimizer}
        objects = {**{name: each for name, each in given.items() if each is not None}, **kwargs}
        kinds = (torch.nn.Module, torch.optim.Optimizer, ElasticSampler)
        parts = {name: objects.pop(name) for name, each in list(objects.items()) if isinstance(each, kinds)}
        super().__init__(broadcast_object, rank, **objects)
        for name, part in parts.items():
            setattr(self, name, part)
        self._parts = {**parts, **self._parts}
        self.save()

    def __setattr__(self, name: str, value: Any) -> None:
        """As in Horovod, saves a model, optimizer or sampler that replaces another one."""
        parts = self.__dict__.get("_parts", {})
        if name in parts:
            self._saved[name] = copy.deepcopy(value.state_dict())
            parts[name] = value
        super().__setattr__(name, value)


def _joined(sampler: ElasticSampler) -> dict[str, Any]:
    """Returns the state of the sampler, with the samples that all ranks have processed. Collective."""
    states = allgather_object(sampler.state_dict())
    return {**sampler.state_dict(), "processed_indices": set().union(*(each["processed_indices"] for each in states))}
