"""Threads that complete futures, and a check of the order of operations that callbacks begin."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import math
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Iterator, NamedTuple, NoReturn, Optional

import torch

import kolo
from kolo import UsageError
from kolo._wait import SLICE_MS

from ._devices import gpu

if TYPE_CHECKING:
    from ._work import KoloWork


_moments = itertools.count()


class Callbacks:
    """The callbacks of a future, and of futures that these callbacks take. They run when the future is complete, which
    on each rank may be before or after operations that the program begins later. If the future is complete when a
    callback is added, the callback runs at once, as a part of the program."""

    left: ClassVar[int] = 0
    """Number of futures whose callbacks may still come, or are running. Changed by what completes them."""

    def __init__(self) -> None:
        self.since = next(_moments)

    def run(self, complete: Callable[[], None]) -> None:
        """Runs `complete`, which completes the future and so runs its callbacks."""
        before = running()
        _here.callbacks = self
        try:
            complete()
        finally:
            _here.callbacks = before


class _Here(threading.local):
    callbacks: Callbacks | None = None


_here = _Here()


def running() -> Callbacks | None:
    """Returns the callbacks that this thread is running."""
    return _here.callbacks


class Order:
    """Checks that all ranks begin the operations of a group in the same order."""

    def __init__(self) -> None:
        self._latest: dict[tuple[Any, ...], tuple[int, Callbacks | None]] = {}

    def begin(self, verb: str, *sizes: int) -> None:
        """Records that an operation begins. Only an operation with equal verb and sizes could be mistaken for it, and
        an operation without elements does no harm. Callbacks are ordered as their futures were taken.

        Raises UsageError in a callback if an equal operation has begun before, but may begin after it on other
        ranks."""
        if Callbacks.left == 0:  # No callback can change the order.
            self._latest.clear()
            return
        if not any(sizes):
            return
        kind = (verb, *sizes)
        callbacks = running()
        moment, others = self._latest.get(kind, (-1, None))
        if callbacks is not None and moment > callbacks.since and (others is None or others.since > callbacks.since):
            raise UsageError(
                f"{verb} in a callback of a future: another one of its size, which the program begins later, has begun "
                "since the future was taken, and ranks may differ in which of them comes first; with DDP hooks make one "
                "bucket (bucket_cap_mb), else begin such operations outside of callbacks"
            )
        self._latest[kind] = (next(_moments), callbacks)


# --- threads ---------------------------------------------------------------------------------------

Step = Callable[[], Optional[int]]
"""Does what is due, without blocking. Returns the result of `descriptor_of` if more is to come; None at the end."""

_NO_DESCRIPTOR = -1
# A step that has slept for this long is waiting.
_PATIENCE_S = 0.01
# Interval at which the thread checks waits without a descriptor, and the longest sleep before a deadline: the kernel
# counts milliseconds in 31 bits.
_RETRY_S = 0.01
_LONGEST_S = 3600.0


def descriptor_of(awaited: Any, made: Callable[[Any], int] | None = None) -> int:
    """Returns a descriptor that becomes readable when there is news of `awaited`, or a placeholder if none can be made.
    `made` makes the descriptor; None: the method `fileno`."""
    try:
        return int(awaited.fileno() if made is None else made(awaited))
    except kolo.KoloError:
        return _NO_DESCRIPTOR


class Promise:
    """A future that a Python thread completes, with a value or an error."""

    def __init__(self, on_gpu: torch.Tensor | None = None) -> None:
        """`on_gpu` is a tensor of the value on a GPU, or None."""
        self._outcome: torch.futures.Future[Any] = torch.futures.Future() if on_gpu is None else gpu().future(on_gpu)
        # C++ also sees an error that a callback raises, but not one of `set_exception`.
        self.future: torch.futures.Future[Any] = self._outcome.then(lambda done: _value_of(done.value()))
        self._callbacks = running() or Callbacks()

    def keep(self, value: Callable[[], Any]) -> None:
        """Completes the future with the result or the exception of `value`. Later calls do nothing."""
        if self._outcome.done():
            return
        try:
            outcome = value()
        except Exception as error:
            outcome = _Failure(error)
        self._callbacks.run(lambda: self._outcome.set_result(outcome))


class _Failure:
    """Wraps an error as the value of a future."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        """Called by torch, which looks for tensors in the value of a future on a GPU."""
        return _Failure, (RuntimeError(),)


def _value_of(outcome: Any) -> Any:
    if isinstance(outcome, _Failure):
        raise outcome.error
    return outcome


def _fail(error: Exception) -> NoReturn:
    raise error


def _at_the_end() -> Exception:
    return kolo.ShutdownError("the process ended before the operation of a future")


def _processor_time_of(thread: threading.Thread) -> float:
    """Returns the CPU time of the thread, which does not grow while the thread sleeps or waits for a CPU."""
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def _sleeps(thread: threading.Thread) -> bool:
    """Returns whether the thread is known to sleep; False if no descriptor is left to find that out."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(") ")[2].startswith("S")
    except OSError:
        return False


class _Watch(NamedTuple):
    """A step that the thread watches."""

    turn: int
    """Order among those that are due at the same time."""
    step: Step
    fail: Callable[[Exception], None]
    until: float


class Completions:
    """Calls steps when their descriptors become readable. One thread at a time watches: it starts with the first step,
    sleeps on descriptors, calls steps one after another, and ends before the interpreter does.

    A step may run callbacks, and a callback may wait for another future. So a second thread stands by, and watches
    while the first thread sleeps in a step. The second thread does not watch if the step waits for an operation, which
    needs no callback to end; then callbacks keep their order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[_Watch] = deque()
        self._turns = itertools.count()
        self._poll = select.epoll()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._poll.register(self._reading, select.EPOLLIN)
        self._is_over = False
        self._threads: list[threading.Thread] = []
        self._looker: threading.Thread | None = None  # None before the first step and after the last one.
        self._steps = 0  # Number of steps that have begun.
        self._is_stepping = False
        self._has_stepped = threading.Event()  # Set by a step after the standby thread's last check.
        # Used only by the watching thread.
        self._waiting: dict[int, _Watch] = {}
        self._others: list[_Watch] = []  # Watches without a descriptor.
        self._due: deque[_Watch] = deque()

    def watch(self, step: Step, fail: Callable[[Exception], None], until: float = math.inf) -> None:
        """Makes the thread call `step` when its descriptor is readable, and at the monotonic time `until`, repeatedly
        until `step` returns None. An exception of `step` goes to `fail` and ends the watch."""
        with self._lock:
            is_over = self._is_over
            if not is_over:
                if self._looker is None:
                    self._looker = self._started(self._look)
                    self._started(self._stand_by)
                self._new.append(_Watch(next(self._turns), step, fail, until))
                Callbacks.left += 1
        if is_over:
            fail(_at_the_end())
        else:
            self._wake()

    def future_of(self, work: KoloWork) -> torch.futures.Future[Any]:
        """Returns a future of the value of `work`. In a callback that a completing thread runs, this waits, and the
        future already is complete. Otherwise its callbacks run after the callbacks of earlier futures that are due."""
        promise = Promise(work.on_gpu)
        end = time.monotonic() + work.limit
        held = [work]

        def step() -> int | None:
            mine = held[0]
            pending = mine.awaited()
            if pending is None:
                with mine.aside():
                    promise.keep(lambda: mine.wait() and mine.finish())
            elif time.monotonic() < end:
                return descriptor_of(pending, mine.descriptor_of)
            else:
                error = pending.late_error(mine.limit)
                # The future keeps the frames of this error. They must not keep a receive, which is then taken back.
                del mine, pending
                held.clear()
                raise error
            return None

        def fail(error: Exception) -> None:
            promise.keep(lambda: _fail(error))

        if threading.current_thread() in self._threads:
            self._wait_for(work, end)
            self._advance(_Watch(0, step, fail, end))
            fail(_at_the_end())  # Does nothing if the future is complete.
        elif work.awaited() is None and Callbacks.left == 0:
            step()
        else:
            self.watch(step, fail, end)
        return promise.future

    def stop(self) -> None:
        """Ends the threads. Incomplete futures get an error, so that no callback waits for them."""
        with self._lock:
            self._is_over = True
        self._wake()
        while alive := [thread for thread in self._threads if thread.is_alive()]:
            alive[0].join()

    def _started(self, run: Callable[[], None]) -> threading.Thread:
        """Starts a thread. The caller holds the lock."""
        thread = threading.Thread(target=run, name="kolo futures", daemon=True)
        thread.start()
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        return thread

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # The pipe is full, so the thread will wake.
            os.write(self._writing, b"x")

    def _wait_for(self, work: KoloWork, end: float) -> None:
        """Waits in this thread until the work is over or the process ends."""
        with self.resting(), work.aside():
            while (pending := work.awaited()) is not None and time.monotonic() < end and not self._is_over:
                with contextlib.suppress(kolo.KoloError):  # The work keeps its error; a timeout only ends the slice.
                    work.wait_for(pending, SLICE_MS / 1000)

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Keeps the standby thread from watching while a callback waits for an operation."""
        self._set_stepping(False)
        try:
            yield
        finally:
            self._set_stepping(True)

    @staticmethod
    def _advance(watch: _Watch) -> int | None:
        try:
            return watch.step()
        except Exception as error:
            watch.fail(error)
        return None

    def _look(self) -> None:
        """Watches until the end, or until another thread has become the watching thread."""
        is_over = False
        while self._take_steps():
            if is_over:
                with self._lock:
                    self._looker = None
                self._has_stepped.set()
                break
            is_over = self._wait_for_news()

    def _take_steps(self) -> bool:
        """Calls all steps that are due. Returns whether this thread still is the watching thread."""
        while self._due:
            watch = self._due.popleft()
            self._set_stepping(True)
            rest = self._advance(watch)
            looks = self._set_stepping(False)
            if rest is not None and looks:
                if self._register(rest):
                    self._waiting[rest] = watch
                else:
                    self._others.append(watch)
                continue
            with self._lock:
                Callbacks.left -= 1
            if rest is not None:
                self.watch(watch.step, watch.fail, watch.until)
            if not looks:
                return False
        return True  # Drops the last watch, so that no ended step stays alive.

    def _set_stepping(self, is_stepping: bool) -> bool:
        """Called when a step of this thread begins, rests or ends. Returns whether this thread still is the watching
        one."""
        with self._lock:
            looks = self._looker is threading.current_thread()
            if looks:
                self._is_stepping = is_stepping
                self._steps += is_stepping
        if is_stepping and not self._has_stepped.is_set():
            self._has_stepped.set()
        return looks

    def _stand_by(self) -> None:
        """Waits until the watching thread sleeps in a step, and then watches in its place."""
        before: tuple[int, float] | None = None
        while True:
            with self._lock:
                looker = self._looker
                if looker is None:
                    return
                if self._is_stepping:
                    now = (self._steps, _processor_time_of(looker))
                    if now == before and _sleeps(looker):
                        self._is_stepping = False
                        self._looker = threading.current_thread()
                        self._started(self._stand_by)
                        break
                    before = now
                else:
                    self._has_stepped.clear()
            self._has_stepped.wait()
            time.sleep(_PATIENCE_S)
        self._look()

    def _wait_for_news(self) -> bool:
        """Sleeps until a step is due. Returns True at the end; then all steps are due and fail."""
        first = min((each.until for each in self._waiting.values()), default=math.inf)
        limit = min(first - time.monotonic(), _RETRY_S if self._others else _LONGEST_S)
        readable = {descriptor for descriptor, _ in self._poll.poll(0.0 if self._is_over else max(0.0, limit))}
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, 4096)
        now = time.monotonic()
        with self._lock:
            is_over = self._is_over
            due = [*self._others, *self._new]
            self._new.clear()
        self._others.clear()
        for descriptor, watch in list(self._waiting.items()):
            if watch.until <= now:
                self._poll.unregister(descriptor)
                readable.add(descriptor)
            if is_over or descriptor in readable:
                due.append(self._waiting.pop(descriptor))
        if is_over:
            due = [each._replace(step=functools.partial(_fail, _at_the_end())) for each in due]
        self._due.extend(sorted(due, key=lambda each: each.turn))
        return is_over

    def _register(self, descriptor: int) -> bool:
        # One shot, because the owner may close the descriptor, and its number may be used again.
        flags = select.EPOLLIN | select.EPOLLONESHOT
        try:
            self._poll.register(descriptor, flags)
        except FileExistsError:
            self._poll.modify(descriptor, flags)
        except (OSError, ValueError):  # The descriptor is closed, or the kernel has no room for it.
            return False
        return True


@functools.cache
def completions() -> Completions:
    """Returns the Completions of the process."""
    made = Completions()
    atexit.register(made.stop)
    return made
