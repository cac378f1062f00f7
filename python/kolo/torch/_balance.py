"""Divides samples among ranks by the speed of the ranks."""

from __future__ import annotations

import collections
import contextlib
import statistics
import time
from typing import Iterator, Sequence, Sized

import torch
from torch.utils.data import Sampler

import kolo
from kolo import UsageError

from ._devices import gpu
from ._parameters import AnyGroup, group_of
from ._tensors import number_memory

_STEPS = 20  # Number of steps between two decisions.
_LEAST_GAIN = 0.05  # Least gain for new parts, as a share of the time of the slowest rank.


def deal_out(samples: int, rates: Sequence[float]) -> list[int]:
    """Divides `samples` among ranks in proportion to their rates, and returns the number of each rank.

    Shares are rounded down, but to 1 at least. Samples that are left go to the ranks with the largest remainders, and
    to the lower rank among equal remainders. Samples that are missing are taken from the ranks that exceed their shares
    most. `samples` is at least the number of ranks.
    """
    shares = [samples * rate / sum(rates) for rate in rates]
    parts = [max(1, int(share)) for share in shares]
    ranks = range(len(parts))
    while sum(parts) < samples:
        parts[max(ranks, key=lambda rank: shares[rank] - parts[rank])] += 1
    while sum(parts) > samples:
        parts[min((rank for rank in ranks if parts[rank] > 1), key=lambda rank: shares[rank] - parts[rank])] -= 1
    return parts


class BalancedBatches(Sampler[list[int]]):
    """A batch sampler that gives each rank a part of every step; see `balanced_batches`."""

    def __init__(
        self, samples: int, batch: int, rates: Sequence[float] | None, group: kolo.Group, seed: int | None
    ) -> None:
        ranks = group.size
        if batch < 1 or samples < batch * ranks:
            raise UsageError(f"{samples} samples do not fill a step, which takes {batch} from each of {ranks} ranks")
        if rates is not None and (len(rates) != ranks or min(rates) <= 0):
            raise UsageError(f"rates {list(rates)}: {ranks} ranks need a positive rate each")
        self._samples, self._in_step, self._group, self._seed = samples, batch * ranks, group, seed
        self._epoch = 0
        self._measures = rates is None
        # Pairs of a step and the parts of all ranks from that step on. Steps are counted over all epochs.
        self._parts = [(0, deal_out(self._in_step, rates or [1.0] * ranks))]
        self._next = 0  # Number of the step after the last one whose indices were taken.
        # The samples of this rank and of all ranks, for each step whose indices were taken but not yet computed.
        self._ahead: collections.deque[tuple[int, int]] = collections.deque()
        self._times: list[float] = []  # Seconds per sample since the last decision.

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, which determines the order of the samples. Call before each epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._samples // self._in_step + (self._samples % self._in_step >= self._group.size)

    def __iter__(self) -> Iterator[list[int]]:
        order: Sequence[int] = range(self._samples)
        if self._seed is not None:
            generator = torch.Generator().manual_seed(self._seed + self._epoch)
            order = torch.randperm(self._samples, generator=generator, device="cpu").tolist()
        self._ahead.clear()
        for step in range(len(self)):
            self._next = self._epoch * len(self) + step + 1
            parts = self.parts(self._next - 1)
            begin = step * self._in_step
            count = min(self._in_step, self._samples - begin)
            if count < self._in_step:
                parts = deal_out(count, parts)
            rank = self._group.rank
            begin += sum(parts[:rank])
            self._ahead.append((parts[rank], count))
            yield list(order[begin : begin + parts[rank]])

    def parts(self, step: int) -> list[int]:
        """Returns the number of samples of each rank in a full step. `step` is counted over all epochs."""
        return next(parts for first, parts in reversed(self._parts) if first <= step)

    @contextlib.contextmanager
    def computing(self) -> Iterator[float]:
        """Measures the time of a block in which this rank computes a step and does not wait for other ranks. Yields the
        factor by which this rank multiplies its mean loss, so that the average over ranks is the mean over all samples
        of the step. Collective: every rank enters the block once for each batch."""
        own, all_ranks = self._ahead.popleft()
        begin = self._now()
        yield own * self._group.size / all_ranks
        self._add((self._now() - begin) / own)

    def _now(self) -> float:
        """Returns the time at which the work so far is done, of a GPU too."""
        if self._measures:
            gpu().finish()
        return time.perf_counter()

    def _add(self, seconds_per_sample: float) -> None:
        if not self._measures:
            return
        self._times.append(seconds_per_sample)
        if len(self._times) < _STEPS:
            return
        own = torch.tensor([statistics.median(self._times), self._next], dtype=torch.float64, device="cpu")
        told = torch.empty(self._group.size, 2, dtype=torch.float64, device="cpu")
        self._group.all_gather(number_memory(own), out=number_memory(told))
        self._times.clear()
        times = [max(each, 1e-9) for each in told[:, 0].tolist()]
        before = self._parts[-1][1]
        parts = deal_out(self._in_step, [1 / each for each in times])
        slowest = [max(seconds * part for seconds, part in zip(times, each)) for each in (parts, before)]
        if slowest[0] <= (1 - _LEAST_GAIN) * slowest[1]:
            # A loader may have taken indices ahead. No rank has taken indices of the largest step.
            self._parts.append((int(told[:, 1].max()), parts))


def balanced_batches(
    samples: int | Sized, batch: int, *, rates: Sequence[float] | None = None, group: AnyGroup = None, seed: int | None = 0
) -> BalancedBatches:
    """Returns a batch sampler for ranks of unequal speed. It divides the samples of each step, `batch` for each rank on
    average, by the speed of the ranks, so that all ranks compute equally long. The weights are those of training with
    equal parts, up to rounding:

        batches = kolo.torch.balanced_batches(dataset, 32)
        loader = torch.utils.data.DataLoader(dataset, batch_sampler=batches)
        for epoch in range(3):
            batches.set_epoch(epoch)
            for x, y in loader:
                with batches.computing() as weight:
                    loss = loss_function(model(x), y)      # a mean over the batch
                (weight * loss).backward()
                optimizer.step()

    `computing` measures the speed, and samples are divided anew when the speed changes. The block may include the
    backward pass if that does not wait for other ranks: with `DistributedOptimizer`, but not with DDP. A last step with
    fewer samples than ranks is left out.

    `samples` is the number of samples, or the data set. `rates` are the speeds of all ranks; None means that they are
    measured, for which `computing` waits for the current stream of a GPU. `seed` determines the order of the samples, which is new in each epoch; None keeps the order of the data
    set. All arguments are equal on all ranks.
    """
    count = samples if isinstance(samples, int) else len(samples)
    return BalancedBatches(count, batch, rates, group_of(group), seed)
