"""An all-to-all in which only the two ranks of each pair know the sizes of their parts."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Sequence

import torch
from torch import Tensor

import kolo
from kolo import Ticket

from ._tensors import moved_memory, number_memory, put
from ._work import Awaited

# Messages of an exchange have larger tags than messages of the user.
_FIRST_TAG = 1 << 32


def exchange(group: kolo.Group, sent: Sequence[Tensor], got: Sequence[Tensor], number: int) -> list[Awaited]:
    """Sends `sent[r]` to each rank r, and receives the part of rank r for this rank into `got[r]`. Returns objects to
    wait for, in this order. `number` counts the collectives of the group.

    Each rank sends a message to each other rank, even if it is empty, so that no rank waits for a message that is never
    sent. A collective compares the sizes that each pair of ranks expects; it is one of the ordered collectives of the
    group.
    """
    me, tag = group.rank, _FIRST_TAG + number
    counts = [(to.numel(), back.numel()) for to, back in zip(sent, got)]
    mine = torch.tensor(counts, device="cpu")
    theirs = torch.empty_like(mine)
    agreement = group.all_to_all(
        number_memory(mine),
        out=number_memory(theirs),
        name=f"all_to_all of {sent[0].dtype} with counts",
        wait=False,
    )
    if sent[me].numel() == got[me].numel():
        put(got[me], sent[me].view(got[me].shape))
    others = [(me + step) % group.size for step in range(1, group.size)]
    receives = [group.recv(moved_memory(got[rank]), rank, tag, wait=False) for rank in others]
    sends = [group.send(moved_memory(sent[rank]), rank, tag, wait=False) for rank in others]
    return [_Agreement(group, agreement, counts, theirs, receives), *receives, *sends]


@dataclasses.dataclass(frozen=True, eq=False)
class _Agreement:
    """Checks that the ranks of each pair agree about the sizes of their parts. `counts` has, for each rank, the number
    of elements that this rank sends to it and expects from it; `theirs` has the numbers of the other ranks."""

    _group: kolo.Group
    _ticket: Ticket
    _counts: Sequence[tuple[int, int]]
    _theirs: Tensor
    _receives: Sequence[Ticket]

    def done(self) -> bool:
        return self._ticket.done()

    def fileno(self) -> int:
        return self._ticket.fileno()

    # Messages are exchanged by the host, also those in device memory.
    enqueued = done
    enqueued_fileno = fileno

    def wait_on(self, stream: int | None, timeout: float | None = None) -> None:
        self.wait(timeout)

    def late_error(self, limit: float) -> kolo.DeadlineError:
        return self._ticket.late_error(limit)

    def wait(self, timeout: float | None = None) -> None:
        """Waits for the exchange. Raises MismatchError on both ranks of a pair that disagrees, and errors of the
        collective."""
        try:
            self._ticket.wait(timeout)
        except kolo.DeadlineError:
            raise
        except kolo.KoloError:  # The other ranks called another operation, and send no message.
            for receive in self._receives:
                with contextlib.suppress(kolo.KoloError):
                    receive.cancel()
            raise
        me = self._group.rank
        for rank, ((to, back), (from_it, expected)) in enumerate(zip(self._counts, self._theirs.tolist())):
            if to != expected:
                raise self._mismatch(rank, f"rank {me} sends {to} elements to rank {rank}, which expects {expected}")
            if from_it != back:
                raise self._mismatch(rank, f"rank {rank} sends {from_it} elements to rank {me}, which expects {back}")

    def _mismatch(self, peer: int, what: str) -> kolo.MismatchError:
        group = self._group._name_in_errors()
        verb = "all_to_all"
        text = f"group {group}: {verb}: {what}" if group else f"{verb}: {what}"
        return kolo.MismatchError(text, rank=self._group.rank, peer=peer, group=group, tensor=verb, what=what)
