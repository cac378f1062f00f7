"""ElasticSampler."""

from __future__ import annotations

from typing import Any, Iterator, Sized

import torch

from ._job import rank, size


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Gives each rank its part of the samples of an epoch that no rank has processed yet, so that an epoch goes on with
    another number of ranks.

        sampler = hvd.elastic.ElasticSampler(dataset)
        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
        ...
        sampler.record_batch(batch_index, batch_size)      # after each step

    Ranks get equally many samples: the last ones of an epoch may come twice.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: set[int] = set()
        """Of this rank, since the last `set_epoch` or `load_state_dict`; and what the latter has brought."""
        self.num_replicas = 0
        """Number of ranks, and this one, at the last `reset`."""
        self.rank = 0
        self.remaining_indices: list[int] = []
        """The samples that were left for all ranks then, in the order of the epoch; `indices` are this rank's."""
        self.num_samples = 0
        """This rank's, and with those of all others."""
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """A new epoch, in which no sample has been processed."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    @property
    def processed_num(self) -> int:
        """Samples of the epoch that are behind if all ranks have recorded as many as this one."""
        here = len(self.processed_indices) - self._behind_at_reset
        return self._behind_at_reset + here * self.num_replicas

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """This rank has processed batch `batch_idx` of the iteration."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: Any) -> None:
        """This rank has processed these samples."""
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The samples of batch `batch_idx` of the iteration."""
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def reset(self) -> None:
        """Shares what is left of the epoch out among the ranks anew."""
        self.num_replicas, self.rank = size(), rank()
        self._behind_at_reset = len(self.processed_indices)
        left = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        if self.shuffle:
            # As all ranks do, from the same state.
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            left = [left[place] for place in torch.randperm(len(left), generator=generator).tolist()]
        self.remaining_indices = left
        self.num_samples = -(-len(left) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        places = range(self.rank, self.total_size, self.num_replicas)
        self.indices = [left[place % len(left)] for place in places]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self.indices))

    def __len__(self) -> int:
        return len(self.indices)
