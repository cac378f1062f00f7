"""The state of an elastic job: what is committed, and what all ranks begin with."""

from __future__ import annotations

import copy
from typing import Any, Callable, Iterable

import torch

from ._commits import Commits
from ._elastic_sampler import ElasticSampler
from ._functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from ._job import rank


class State:
    """What `commit` saves, `restore` brings back and `sync` gives to all ranks; for derived classes."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        """As in Horovod: `hvd.broadcast_object` and `hvd.rank`, which derived classes may call."""
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits: Commits | None = None  # `run` has them.

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Calls these when a job goes on from a commit, perhaps with another number of ranks."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Saves the state here, and for ranks that torchrun starts again. Collective."""
        self.save()
        if self._commits is not None:
            content = self.content()
            if self._rank() == 0:
                self._commits.write(content)

    def check_host_updates(self) -> None:
        """Does nothing: hosts that come or go make torchrun start all ranks again."""

    def attach(self, commits: Commits | None) -> None:
        """For `run`: goes on from the last commit, if there is one, with the state of rank 0. Collective."""
        self._commits = commits
        content = commits.read() if commits is not None and self._rank() == 0 else None
        goes_on = broadcast_object(content is not None, name="elastic commit")
        if content is not None:
            self.load_content(content)
        self.sync()
        if goes_on:
            self.on_reset()

    def detach(self) -> None:
        """For `run`: the job is done, and its commits with it."""
        if self._commits is not None and self._rank() == 0:
            self._commits.forget()

    def content(self) -> Any:
        """What a commit of all ranks holds, on rank 0. Collective."""
        raise NotImplementedError

    def load_content(self, content: Any) -> None:
        """Takes it over, on rank 0."""
        raise NotImplementedError

    def save(self) -> None:
        """Saves the state here."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved here."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks the state of rank 0, and saves it. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """What is to be made anew before the callbacks of a job that goes on."""


class ObjectState(State):
    """Objects that can be pickled, as attributes: `ObjectState(hvd.broadcast_object, hvd.rank, epoch=0)`."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_objects = dict(kwargs)
        self._set_objects()

    def save(self) -> None:
        self._saved_objects = copy.deepcopy(self._objects())

    def restore(self) -> None:
        self._set_objects()

    def sync(self) -> None:
        if self._saved_objects:
            self._saved_objects = self._bcast_object(self._objects())
            self._set_objects()

    def _objects(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._saved_objects}

    def content(self) -> Any:
        return {"objects": self._saved_objects}

    def load_content(self, content: Any) -> None:
        self._saved_objects.update(content["objects"])
        self._set_objects()

    def _set_objects(self) -> None:
        for name, value in self._saved_objects.items():
            setattr(self, name, copy.deepcopy(value))


class TorchState(ObjectState):
    """Models, optimizers, samplers and objects, as attributes of the names of the arguments:

        state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, epoch=0)
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"model": model, "optimizer": optimizer}
        given = {**{name: each for name, each in given.items() if each is not None}, **kwargs}
        self._parts = {
            name: each
            for name, each in given.items()
            if isinstance(each, (torch.nn.Module, torch.optim.Optimizer, ElasticSampler))
        }
        self._saved_parts: dict[str, Any] = {}
        super().__init__(
            broadcast_object, rank, **{name: each for name, each in given.items() if name not in self._parts}
        )
        for name, part in self._parts.items():
            setattr(self, name, part)
        self.save()

    def save(self) -> None:
        self._saved_parts = {name: copy.deepcopy(part.state_dict()) for name, part in self._parts.items()}
        super().save()

    def restore(self) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(copy.deepcopy(self._saved_parts[name]))
        super().restore()

    def sync(self) -> None:
        for name, part in self._parts.items():
            if isinstance(part, torch.nn.Module):
                broadcast_parameters(part.state_dict(), 0)
            elif isinstance(part, torch.optim.Optimizer):
                broadcast_optimizer_state(part, 0)
            else:
                part.load_state_dict(broadcast_object(_joined(part), name=name))
        super().sync()
        self.save()

    def content(self) -> Any:
        samplers = {name: _joined(part) for name, part in self._parts.items() if isinstance(part, ElasticSampler)}
        return {**super().content(), "parts": {**self._saved_parts, **samplers}}

    def load_content(self, content: Any) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(content["parts"][name])
        super().load_content(content)


def _joined(sampler: ElasticSampler) -> dict[str, Any]:
    """Its state with the samples that all ranks have processed. Collective."""
    states = allgather_object(sampler.state_dict())
    return {**sampler.state_dict(), "processed_indices": set().union(*(each["processed_indices"] for each in states))}
