"""Scenes of horovod_scenes.py: the state of elastic jobs, without restarts."""

import os
import pathlib
import tempfile

import torch

import kolo.horovod as hvd
from horovod_checks import check, raises
from horovod_training_scenes import batch, network, sgd, weights


def elastic_states():
    """What is committed, restored, given to all ranks, and read by those that begin anew."""
    model = network(hvd.rank())
    optimizer = sgd(model)
    sampler = hvd.elastic.ElasticSampler(range(11), shuffle=False)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=hvd.rank(), notes=[])
    assert state.model is model and state.optimizer is optimizer and state.sampler is sampler
    state.sync()
    assert state.epoch == 0
    check(weights(model), weights(network(0)), "the model of rank 0")
    model(batch(0, 0)).sum().backward()
    optimizer.step()
    state.epoch, state.notes = 5, ["a"]
    state.save()
    saved = weights(model).clone()
    optimizer.step()
    state.notes.append("b")
    state.epoch = 6
    state.restore()
    assert (state.epoch, state.notes) == (5, ["a"])
    check(weights(model), saved, "restored")
    check_sampler(hvd.elastic.ElasticSampler(range(11), shuffle=True, seed=3))
    check_commits(state, model, saved)
    with raises(NotImplementedError, ""):
        hvd.elastic.State(hvd.broadcast_object, hvd.rank).save()


def check_sampler(sampler):
    """Each sample comes once; the last ones may come twice."""
    first = hvd.allgather_object(list(sampler))
    assert {len(each) for each in first} == {-(-11 // hvd.size())} and len(sampler) == len(first[0])
    assert set().union(*first) == set(range(11))
    assert (sampler.rank, sampler.num_replicas) == (hvd.rank(), hvd.size())
    assert (sampler.num_samples, sampler.total_size) == (len(sampler), hvd.size() * len(sampler))
    assert sorted(sampler.remaining_indices) == list(range(11)) and sampler.processed_num == 0
    sampler.record_batch(0, 2)
    assert sampler.processed_num == 2 * hvd.size()
    state = hvd.elastic.TorchState(sampler=sampler)
    state.sync()
    done = set().union(*(each[:2] for each in first))
    assert sampler.processed_indices == done and sampler.processed_num == len(done)
    assert set(sampler.remaining_indices) == set(range(11)) - done
    left = hvd.allgather_object(list(sampler))
    assert set().union(*left) == set(range(11)) - done
    sampler.record_batch(0, 11)
    state.sync()
    assert len(sampler) == 0 and list(sampler) == []
    before = list(first[hvd.rank()])
    sampler.set_epoch(0)
    assert list(sampler) == before
    sampler.set_epoch(1)
    assert list(sampler) != before and hvd.size() * len(sampler) >= 11


def check_commits(state, model, saved):
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    os.environ["KOLO_COMMITS"] = folder
    calls = []

    @hvd.elastic.run
    def fails(state, what, *, where):
        state.commit()
        state.epoch = 7
        assert what == where
        hvd.barrier()
        raise KeyError("a bug")

    with raises(KeyError, "a bug"):
        fails(state, "x", where="x")
    assert [each.name for each in pathlib.Path(folder).iterdir()] == ["commit.pt"]

    other = network(9)
    again = hvd.elastic.TorchState(model=other, optimizer=sgd(other), sampler=state.sampler, epoch=0, notes=[])
    again.register_reset_callbacks([lambda: calls.append("reset")])

    @hvd.elastic.run
    def goes_on(state):
        assert (state.epoch, state.notes, calls) == (5, ["a"], ["reset"])
        check(weights(other), saved, "committed")
        return "done"

    assert goes_on(again) == "done" and goes_on.__name__ == "goes_on"
    hvd.barrier()
    assert not os.listdir(folder)
    hvd.barrier()
    if hvd.rank() == 0:
        os.rmdir(folder)
    del os.environ["KOLO_COMMITS"]
