"""Messages between two ranks of a group."""

from __future__ import annotations

import contextlib
from typing import Any, Literal, overload

from . import _c
from ._buffers import Memory, memory_of
from ._errors import DeadlineError, KoloError, UsageError
from ._library import library
from ._streams import stream_for
from ._wait import Calls, Received, Ticket, received

ANY_RANK: int = _c.KOLO_ANY_RANK
"""As `peer` of a receive: takes the first message, whichever rank sends it."""


class Messages(Calls):
    """The methods `send` and `recv` of a group. Only the sender and the receiver call them, without a name. Messages
    from one rank to another with the same tag are received in the order in which they were sent. Arrays in device
    memory are used after the work enqueued on `stream`, as in collectives.

    A list of arrays is one message; their types may differ. The receiver passes a list of as many arrays, each of the
    same type and number of elements as in the send; any difference is a MismatchError, which quotes both lists. A list
    of one array is equivalent to that array.
    """

    @overload
    def send(self, x: Any, peer: int, tag: int = ..., *, stream: int | None = ..., wait: Literal[True] = ...) -> None: ...
    @overload
    def send(self, x: Any, peer: int, tag: int = ..., *, stream: int | None = ..., wait: Literal[False]) -> Ticket[None]: ...
    @overload
    def send(self, x: Any, peer: int, tag: int = ..., *, stream: int | None = ..., wait: bool) -> Ticket[None] | None: ...

    def send(self, x: Any, peer: int, tag: int = 0, *, stream: int | None = None, wait: bool = True) -> Ticket[None] | None:
        """Sends the elements of `x` to rank `peer`. The operation is over when `x` may be changed again: at once for a
        small message, otherwise only after the receiver has called `recv`. Two ranks that send each other a large
        message before they receive would wait for each other."""
        memory = _memories(x)
        subject = self._subject(f"send to rank {peer}, tag {tag}", peer)
        ticket = Ticket(self._handle, (self, memory), lambda _: None, subject)
        on = stream_for(stream, memory)
        ticket.begin(library().kolo_send, self._pointer, *_parameters(memory), peer, _tag(tag), on)
        return ticket.wait() if wait else ticket

    @overload
    def recv(self, x: Any, peer: int = ..., tag: int = ..., *, stream: int | None = ..., wait: Literal[True] = ...) -> Received: ...
    @overload
    def recv(self, x: Any, peer: int = ..., tag: int = ..., *, stream: int | None = ..., wait: Literal[False]) -> Ticket[Received]: ...
    @overload
    def recv(self, x: Any, peer: int = ..., tag: int = ..., *, stream: int | None = ..., wait: bool) -> Ticket[Received] | Received: ...

    def recv(self, x: Any, peer: int = ANY_RANK, tag: int = 0, *, stream: int | None = None, wait: bool = True) -> Ticket[Received] | Received:
        """Receives a message into `x` from rank `peer`, or from any rank. `x` may be longer than the message. Returns
        `Received(source, count)`.

        Errors: MismatchError if the message is longer than `x` or of another type. After a DeadlineError or
                KeyboardInterrupt the receive is cancelled, and the next receive gets the message; see `Ticket.cancel`.
        """
        memory = _memories(x, writable=True)
        is_any = peer == ANY_RANK
        source = "any rank" if is_any else f"rank {peer}"
        subject = self._subject(f"recv from {source}, tag {tag}", None if is_any else peer)
        ticket = Ticket(self._handle, (self, memory), received, subject)
        on = stream_for(stream, memory)
        call = (library().kolo_recv, self._pointer, *_parameters(memory), peer, _tag(tag), on, None)
        if wait:
            return _receive(ticket, call)
        ticket.begin(*call)
        return ticket


def _memories(x: Any, *, writable: bool = False) -> list[Memory]:
    if not isinstance(x, (list, tuple)):
        return [memory_of(x, "x", writable=writable)]
    return [memory_of(each, f"x[{i}]", writable=writable) for i, each in enumerate(x)]


def _parameters(memories: list[Memory]) -> tuple[Any, int]:
    """Returns the buffers as an array of the C interface, and its length."""
    buffers = (_c.kolo_buffer * len(memories))(*[memory.parameter() for memory in memories])
    return buffers, len(memories)


def _receive(ticket: Ticket[Received], call: tuple[Any, ...]) -> Received:
    """Begins a receive by this call and waits for it. Kolo no longer uses the array when this returns or raises."""
    try:
        ticket.begin(*call)
        return ticket.wait()
    except DeadlineError:
        if ticket.cancel():
            raise
        return ticket.wait()
    except KoloError:
        raise  # The operation is over.
    except BaseException:  # An exception of a signal handler.
        with contextlib.suppress(KoloError):
            ticket.cancel()
        raise


def _tag(tag: int) -> int:
    if not 0 <= tag < 2**64:
        raise UsageError(f"a tag is from 0 to 2**64 - 1, not {tag}")
    return tag
