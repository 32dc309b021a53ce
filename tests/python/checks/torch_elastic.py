"""Elastic state and sampler, in a job whose ranks stay."""

import torch

import horovod.torch as hvd
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
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler,
                                   epoch=hvd.rank(), seen=[hvd.rank()])
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
        late = hvd.allreduce_async(torch.ones(2), name="nobody answers")
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
hvd_size = hvd.size()
