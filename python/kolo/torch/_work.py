"""Operations in flight, as `Work` of torch."""

from __future__ import annotations

import contextlib
import math
import threading
from datetime import timedelta
from typing import Any, Callable, ContextManager, Protocol, Sequence

import torch
from torch._C._distributed_c10d import Work

from kolo import DeadlineError, KoloError

from ._completions import completions, running
from ._devices import gpu


class Awaited(Protocol):
    """The interface of objects for which a work waits: a ticket, or a similar object."""

    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> Any: ...
    def fileno(self) -> int: ...
    def enqueued(self) -> bool: ...
    def wait_on(self, stream: int | None, timeout: float | None = None) -> None: ...
    def enqueued_fileno(self) -> int: ...
    def late_error(self, limit: float) -> DeadlineError: ...


def nothing() -> None:
    """Does nothing; the `finish` of work without results."""


class KoloWork(Work):
    """Work of torch that consists of tickets. It holds all tensors that it needs, so the program may drop the tensors
    and the work before it is done.

    `wait` drives Kolo in the caller's thread. Another thread, which sleeps on the tickets' descriptors, completes
    futures.

    Work on tensors of a GPU is as that of NCCL in torch: `wait` makes the current stream wait for the results, and does
    not itself wait for the device; a future is complete once its waits can do the same. But both first wait until all
    ranks have begun the operation.
    """

    def __init__(
        self,
        tickets: Sequence[Awaited],
        finish: Callable[[], None],
        result: Any,
        timeout: timedelta | None,
        on_gpu: torch.Tensor | None = None,
    ) -> None:
        """`finish` copies results to their tensors when all tickets are done. `timeout` is for waits without a timeout;
        None means the option `operation_timeout`. `on_gpu` is a tensor of the operation on a GPU, or None."""
        super().__init__()
        self.tickets = tickets
        self._finish = finish
        self.results = result
        """The tensors of the results."""
        self._timeout = timeout
        self._source: int | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._lock = threading.RLock()  # Reentrant: a future may be complete when it is made, and then calls `finish`.
        self._is_finished = False
        self.on_gpu = on_gpu
        self._end: Any = None  # On a GPU: the event after `finish`.

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until the work is done, by default for at most the group's timeout. Raises the operation's error."""
        limit = timeout if timeout > timedelta(0) else self._timeout
        seconds = None if limit is None else limit.total_seconds()
        with contextlib.nullcontext() if running() is None else completions().resting():
            for ticket in self.tickets:
                self.wait_for(ticket, seconds)
        self.finish()
        if self.on_gpu is not None:
            gpu().order(self.on_gpu, self._end)  # Another thread, with another stream, may have finished.
        return True

    def wait_for(self, ticket: Awaited, seconds: float | None) -> None:
        """Waits until the ticket, which is one of this work, blocks `wait` no longer."""
        if self.on_gpu is not None:
            ticket.wait_on(gpu().stream(self.on_gpu), seconds)
            return
        got = ticket.wait(seconds)
        if self._source is None and got is not None:
            self._source = getattr(got, "source", None)

    def finish(self) -> Any:
        """Called when all tickets are done. The first call copies results to their tensors. Returns the value for a
        future."""
        with self._lock:
            if not self._is_finished:
                self._finish()
                if self.on_gpu is not None:
                    self._end = gpu().event(self.on_gpu)
                self._is_finished = True
        return self.results

    @property
    def limit(self) -> float:
        """Seconds after which waits and the future of this work end with an error; infinite without a limit."""
        return math.inf if self._timeout is None else self._timeout.total_seconds()

    def pending(self) -> Awaited | None:
        """Returns the first ticket that is not done; None if the work is over, because all tickets are done or an
        earlier ticket has failed."""
        return self._first(lambda ticket: ticket.done())

    def awaited(self) -> Awaited | None:
        """Works like `pending`, for the tickets that make `wait` block: those that are not enqueued on a GPU."""
        return self.pending() if self.on_gpu is None else self._first(lambda ticket: ticket.enqueued())

    def _first(self, is_over: Callable[[Awaited], bool]) -> Awaited | None:
        for number, ticket in enumerate(self.tickets):
            if not is_over(ticket):
                return None if any(map(_has_failed, self.tickets[:number])) else ticket
        return None

    def descriptor_of(self, awaited: Awaited) -> int:
        """Returns a descriptor that becomes readable when `awaited` blocks `wait` no longer."""
        return awaited.fileno() if self.on_gpu is None else awaited.enqueued_fileno()

    def aside(self) -> ContextManager[Any]:
        """Returns a context in which a thread that completes futures waits for this work."""
        return contextlib.nullcontext() if self.on_gpu is None else gpu().aside(self.on_gpu)

    def is_completed(self) -> bool:
        if self.pending() is not None:
            return False
        with contextlib.suppress(KoloError):  # `exception` returns it.
            self.wait()  # Copies results to their tensors.
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        if not self.is_completed():
            return None
        try:
            self.wait()
        except Exception as error:
            return error
        return None

    def result(self) -> Any:
        self.wait()
        return self.results

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        """Returns the source rank of a receive from any rank."""
        self.wait()
        if self._source is None:  # On a GPU a wait has no result; a receive is over by now, because the host makes it.
            sources = (getattr(ticket.wait(), "source", None) for ticket in self.tickets)
            self._source = next((each for each in sources if each is not None), None)
        return -1 if self._source is None else self._source

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future of the list of result tensors."""
        with self._lock:
            if self._future is None:
                self._future = completions().future_of(self)
            return self._future


def _has_failed(ticket: Awaited) -> bool:
    """Returns whether a ticket is done with an error."""
    if not ticket.done():  # It is enqueued on a GPU.
        return False
    try:
        ticket.wait()
    except KoloError:
        return True
    return False


def together(works: Sequence[KoloWork], timeout: timedelta | None) -> KoloWork:
    """Returns work that is done when all `works` are done; its result concatenates their results."""
    results = [result for work in works for result in work.results]

    def finish() -> None:
        for work in works:
            work.finish()

    on_gpu = next((work.on_gpu for work in works if work.on_gpu is not None), None)
    return KoloWork([ticket for work in works for ticket in work.tickets], finish, results, timeout, on_gpu)
