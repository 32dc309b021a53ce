# SPDX-License-Identifier: Apache-2.0
"""Elastic state and sampler, in a job whose ranks do not change."""

import os

import numpy as np
import torch

import horovod.torch as hvd
from horovod.common.elastic import run_fn
from horovod.common.exceptions import HorovodInternalError
from support.expect import agree, raises


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(3, 2)


def check_torch_state_sync_save_restore():
    model = model_of(hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.9)
    sampler = hvd.elastic.ElasticSampler(list(range(20)), shuffle=False)
    if hvd.rank() == 0:
        sampler.record_batch(0, 2)
    state = hvd.elastic.TorchState(
        model=model, optimizer=optimizer, sampler=sampler, epoch=hvd.rank(), seen=[hvd.rank()]
    )
    state.sync()
    assert state.epoch == 0 and state.seen == [0] and state.model is model
    agree(hvd.allgather_object, model.weight.tolist())
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert sampler.processed_num == 2 * hvd.size()
    saved = model.weight.detach().clone()
    state.epoch = 3
    state.seen.append(5)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state.restore()
    assert state.epoch == 0 and state.seen == [0], "an object that changed in place was kept"
    assert torch.equal(model.weight, saved)
    state.epoch = 4
    state.commit()
    state.epoch = 5
    state.restore()
    assert state.epoch == 4
    replacement = model_of(99)
    state.model = replacement
    state.sync()
    assert state.model is replacement
    empty = hvd.elastic.TorchState(batch=1)
    assert empty.model is None and empty.optimizer is None


class _Counting(torch.nn.Linear):
    count = 0

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


def check_extra_state_of_modules():
    model = torch.nn.Sequential(_Counting(3, 2), _Counting(2, 1))
    model[0].count, model[1].count = hvd.rank() + 1, hvd.rank() + 5
    state = hvd.elastic.TorchState(model=model)
    state.sync()
    assert (model[0].count, model[1].count) == (1, 5)
    agree(hvd.allgather_object, [parameter.tolist() for parameter in model.parameters()])
    model[0].count = 9
    state.restore()
    assert model[0].count == 1


def check_run_restores_after_a_lost_peer():
    calls = []

    @hvd.elastic.run
    def train(state, extra):
        calls.append((state.step, extra))
        state.step += 1
        if len(calls) == 1:
            state.commit()
            state.step = 100
            raise HorovodInternalError("as if a peer was lost")
        return state.step

    resets = []
    state = hvd.elastic.TorchState(model=model_of(1), step=0)
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])
    size = hvd.size()
    assert train(state, "x") == 2
    assert calls == [(0, "x"), (1, "x")] and resets == [size]
    total = hvd.allreduce(torch.ones(1), op=hvd.Sum)
    assert total.item() == size


def check_run_goes_on_after_new_hosts():
    calls = []

    @hvd.elastic.run
    def train(state):
        calls.append(state.step)
        state.step += 1
        if len(calls) == 1:
            state.on_hosts_updated(1, 1)  # HostUpdateResult.removed
            state.commit()
        return state.step

    assert train(hvd.elastic.TorchState(step=0)) == 2
    assert calls == [0, 1]
    state = hvd.elastic.TorchState(step=0)
    state.on_hosts_updated(5, 1)
    interrupt = raises(hvd.HostsUpdatedInterrupt, state.check_host_updates)
    assert interrupt.skip_sync
    state.on_hosts_updated(6, 2)
    interrupt = raises(hvd.HostsUpdatedInterrupt, state.check_host_updates)
    assert not interrupt.skip_sync
    state.check_host_updates()


def check_all_sync_where_one_has_to():
    """A lost peer may come between the notifications of one rank and of another: where one rank went back
    to its last commit, the others do not go on without it."""
    for same_reports in (False, True):
        calls = []

        @hvd.elastic.run
        def train(state):
            calls.append(state.step)
            if len(calls) == 1:
                state.step = 10 + hvd.rank()
                if hvd.rank() == 0 and not same_reports:
                    raise HorovodInternalError("as if a peer was lost")
                raise hvd.HostsUpdatedInterrupt(skip_sync=True)
            return state.step

        step = train(hvd.elastic.TorchState(step=0))
        assert step == (10 + hvd.rank() if same_reports else 0), (same_reports, step)


def check_host_changes_while_the_ranks_meet():
    """What is learned of the epoch that begins is not forgotten with what was learned of the one before."""
    calls, resets = [], []
    state = hvd.elastic.TorchState(step=0)

    def meet():
        resets.append(1)
        hvd.shutdown()
        hvd.init()
        if len(resets) == 1:
            state.on_hosts_updated(7, 2)

    def train(state):
        calls.append(1)
        if len(calls) == 1:
            state.on_hosts_updated(3, 2)  # of the epoch that ends
            raise HorovodInternalError("as if a peer was lost")
        state.check_host_updates()

    run_fn(train, meet)(state)
    assert (len(calls), len(resets)) == (3, 2), (calls, resets)


def check_an_optimizer_is_made_without_the_others():
    """A rank that comes into an elastic job makes its own when the others have long made theirs."""
    os.environ["HOROVOD_ELASTIC"] = "1"
    try:
        model = model_of(0)
        parameters = list(model.named_parameters())
        if hvd.rank() == 0:
            parameters.reverse()  # whatever the order
            hvd.allreduce(torch.ones(1), name="meanwhile")
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([value for _, value in parameters], lr=0.1), parameters, groups=1
        )
        if hvd.rank() != 0:
            hvd.allreduce(torch.ones(1), name="meanwhile")
    finally:
        del os.environ["HOROVOD_ELASTIC"]
    model(torch.full((1, 3), hvd.rank() + 1.0)).sum().backward()
    optimizer.step()
    agree(hvd.allgather_object, model.weight.tolist())


def check_a_lone_rank_that_is_joined():
    """An optimizer that was made in a world of one does with its step what those of later ranks do."""
    place = {
        f"HOROVOD_{name}": os.environ[f"HOROVOD_{name}"]
        for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    }
    model = model_of(0)

    def made():
        os.environ["HOROVOD_ELASTIC"] = "1"
        try:
            return hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Adasum
            )
        finally:
            del os.environ["HOROVOD_ELASTIC"]

    hvd.shutdown()
    try:
        os.environ.update({name: str(int(name.endswith("SIZE"))) for name in place})
        hvd.init()
        if hvd_rank == 0:
            optimizer = made()
            before = model.bias.detach().clone()
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            assert torch.allclose(model.bias, before - 0.1)
            optimizer.zero_grad()
        hvd.shutdown()
    finally:
        os.environ.update(place)
    hvd.init()
    if hvd_rank != 0:
        optimizer = made()
    assert hvd.size() == hvd_size
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    agree(hvd.allgather_object, model.weight.tolist())


def check_a_script_that_goes_on_counting_batches():
    """After a reset the batches of the rest may be numbered from 0 or from where they were."""
    data = list(range(8 * hvd.size()))
    for offset in (0, 2):
        sampler = hvd.elastic.ElasticSampler(data, shuffle=False)
        for index in range(2):
            sampler.record_batch(index, 2)
        sampler.reset()
        for index in range(2):
            sampler.record_batch(offset + index, 2)
        assert sampler.processed_num == len(data)
        sampler.reset()
        assert len(sampler) == 0 and list(sampler) == []


def check_mistakes_are_not_retried():
    """A mismatch would happen again: it ends the loop (a lost peer would not)."""
    if hvd.size() == 1:
        return
    calls = []

    @hvd.elastic.run
    def train(state):
        calls.append(1)
        hvd.allreduce(torch.ones(2 + hvd.rank()), name="different shapes")

    raises(HorovodInternalError, train, hvd.elastic.TorchState(step=0))
    assert len(calls) == 1
    raises(KeyError, hvd.elastic.run(lambda state: {}["no"]), hvd.elastic.TorchState(step=0))


def check_sampler():
    data = list(range(23))
    sampler = hvd.elastic.ElasticSampler(data, shuffle=True, seed=4)
    everything = hvd.allgather_object(list(sampler))
    flat = [index for part in everything for index in part]
    assert set(flat) == set(data)
    assert len({len(part) for part in everything}) == 1 and len(sampler) == len(everything[0])
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first or hvd.size() > 8
    sampler.set_epoch(0)
    assert list(sampler) == first
    sampler.set_epoch(256)
    of_numpy = hvd.elastic.ElasticSampler(data, seed=np.uint8(4))
    for epoch in (256, np.int64(256)):
        of_numpy.set_epoch(epoch)
        assert list(of_numpy) == list(sampler)
    sampler.set_epoch(0)
    sampler.record_batch(0, 2)
    sampler.reset()
    done = {index for part in everything for index in part[:2]}
    rest = {index for part in hvd.allgather_object(list(sampler)) for index in part}
    assert rest == set(data) - done
    other = hvd.elastic.ElasticSampler(data, shuffle=True, seed=4)
    other.load_state_dict(sampler.state_dict())
    assert list(other) == list(sampler)
    loader = torch.utils.data.DataLoader(data, batch_size=3, sampler=sampler)
    assert sum(len(batch) for batch in loader) == len(sampler)


def check_shutdown_and_init_again():
    handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum, name="before")
    while not hvd.poll(handle):
        pass
    late = None
    if hvd.rank() == 0 and hvd.size() > 1:
        late = hvd.allreduce_async(torch.ones(2), name="unanswered")
    hvd.allreduce(torch.ones(1))
    hvd.shutdown()
    assert not hvd.is_initialized()
    assert hvd.synchronize(handle).tolist() == [hvd_size, hvd_size]
    if late is not None:
        raises(HorovodInternalError, hvd.synchronize, late)
    raises(ValueError, hvd.rank)
    raises(ValueError, hvd.size)
    raises(HorovodInternalError, hvd.allreduce, torch.ones(1))
    hvd.init()
    assert hvd.size() == hvd_size
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd_size


hvd.init()
hvd_size, hvd_rank = hvd.size(), hvd.rank()
