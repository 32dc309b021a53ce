# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with the backend "hora": every operation, groups, futures, errors, DDP, FSDP2 and DTensor."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import hora as hvd  # noqa: F401 - the runner ends the job with it

RELEASE = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
dist.init_process_group("hora", timeout=timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
OPS = dist.ReduceOp
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
INTEGERS += [getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOAT8 = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]


def same(tensor, values):
    expected = torch.tensor(values, dtype=torch.float64)
    assert torch.equal(tensor.double(), expected), (tensor, values)


def check_backend():
    assert dist.get_backend() == "hora" and dist.is_initialized()
    assert "hora" not in str(dist.Backend("gloo"))


def check_all_reduce():
    total = SIZE * (SIZE + 1) // 2
    for dtype in [*INTEGERS, *FLOATS, *FLOAT8]:
        for op, result in ((OPS.SUM, total), (OPS.MIN, 1), (OPS.MAX, SIZE)):
            if dtype == getattr(torch, "uint64", None) and op != OPS.SUM:
                continue
            tensor = torch.full((2, 3), RANK + 1).to(dtype)
            dist.all_reduce(tensor, op)
            same(tensor, [[result] * 3] * 2)
    for dtype in (torch.float32, torch.int64):
        tensor = torch.full((5,), 2, dtype=dtype)
        dist.all_reduce(tensor, OPS.PRODUCT)
        same(tensor, [2**SIZE] * 5)
        tensor = torch.full((5,), 3 * RANK, dtype=dtype)
        dist.all_reduce(tensor, OPS.AVG)
        same(tensor, [3 * (SIZE - 1) / 2 if dtype.is_floating_point else 3 * (SIZE - 1) // 2] * 5)
    tensor = torch.full((4,), float(RANK))
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    same(tensor, [SIZE * (SIZE - 1) / 4] * 4)
    tensor = torch.full((2,), RANK + 1j)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((2,), SIZE * (SIZE - 1) / 2 + SIZE * 1j)), tensor


def check_where_gloo_surprises():
    tensor = torch.ones(3, dtype=torch.bool)
    for _ in range(9):
        dist.all_reduce(tensor)
    assert tensor.all()
    tensor = torch.tensor([RANK == 0, True, False])
    dist.all_reduce(tensor, OPS.BAND)
    assert tensor.tolist() == [SIZE == 1, True, False]
    for op in (OPS.MIN, OPS.MAX):
        tensor = torch.tensor([float("nan") if RANK == SIZE - 1 else 1.0, float("nan") if RANK == 0 else 1.0])
        dist.all_reduce(tensor, op)
        assert tensor.isnan().all(), tensor
    tensor = torch.full((3,), float(RANK + 1))
    dist.reduce(tensor, 0)
    same(tensor, [SIZE * (SIZE + 1) / 2 if RANK == 0 else RANK + 1] * 3)
    rows = torch.full((4, 6), float(RANK + 1))
    for view in (rows[:, 1], rows.t()[2:4]):
        dist.all_reduce(view)
    same(rows[0], [RANK + 1, SIZE * (SIZE + 1) / 2] + [SIZE * (SIZE + 1) / 2] * 2 + [RANK + 1] * 2)


def check_bitwise():
    for op, function in ((OPS.BAND, int.__and__), (OPS.BOR, int.__or__), (OPS.BXOR, int.__xor__)):
        expected = 5
        for rank in range(1, SIZE):
            expected = function(expected, 5 + rank)
        tensor = torch.tensor([5 + RANK], dtype=torch.int32)
        dist.all_reduce(tensor, op)
        same(tensor, [expected])


def check_reduce_scatter():
    inputs = [torch.full((2,), float(RANK + 10 * rank)) for rank in range(SIZE)]
    expected = SIZE * (SIZE - 1) / 2 + 10 * RANK * SIZE
    output = torch.empty(2)
    dist.reduce_scatter(output, inputs)
    same(output, [expected] * 2)
    dist.reduce_scatter_tensor(output, torch.cat(inputs), OPS.AVG)
    same(output, [expected / SIZE] * 2)
    dist.reduce_scatter_tensor(output, torch.stack(inputs), OPS.MAX)
    same(output, [SIZE - 1 + 10 * RANK] * 2)
    uneven = [torch.full((rank + 1,), float(RANK)) for rank in range(SIZE)]
    output = torch.empty(RANK + 1)
    dist.reduce_scatter(output, uneven)
    same(output, [SIZE * (SIZE - 1) / 2] * (RANK + 1))
    small = torch.zeros(1, dtype=torch.int32)
    dist.reduce_scatter_tensor(small, torch.full((SIZE,), 1 << RANK, dtype=torch.int32), OPS.BOR)
    same(small, [2**SIZE - 1])


def check_all_gather():
    for dtype in [torch.bool, torch.complex64, *INTEGERS, *FLOATS, *FLOAT8]:
        mine = torch.full((2, 2), RANK).to(dtype)
        outputs = [torch.empty(2, 2).to(dtype) for _ in range(SIZE)]
        dist.all_gather(outputs, mine)
        for rank, each in enumerate(outputs):
            assert torch.equal(
                each.float() if not each.is_complex() else each.real,
                torch.full((2, 2), rank).to(dtype).to(torch.float32 if not each.is_complex() else each.dtype).real,
            ), each
    output = torch.empty(SIZE * 3)
    dist.all_gather_into_tensor(output, torch.full((3,), float(RANK)))
    same(output.view(SIZE, 3)[:, 0], list(range(SIZE)))
    uneven = [torch.empty(rank) for rank in range(SIZE)]
    dist.all_gather(uneven, torch.full((RANK,), float(RANK)))
    for rank, each in enumerate(uneven):
        same(each, [rank] * rank)


def check_coalesced():
    with dist.distributed_c10d._coalescing_manager():
        tensors = [torch.full((n + 1,), float(RANK + n)) for n in range(4)]
        for each in tensors:
            dist.all_reduce(each)
    for n, each in enumerate(tensors):
        same(each, [SIZE * (SIZE - 1) / 2 + n * SIZE] * (n + 1))
    outputs = [torch.empty(SIZE * n) for n in (1, 3)]
    with dist.distributed_c10d._coalescing_manager():
        for output, n in zip(outputs, (1, 3)):
            dist.all_gather_into_tensor(output, torch.full((n,), float(RANK)))
    same(outputs[1].view(SIZE, 3)[:, 2], list(range(SIZE)))
    outputs = [torch.empty(n) for n in (1, 3)]
    with dist.distributed_c10d._coalescing_manager():
        for output, n in zip(outputs, (1, 3)):
            dist.reduce_scatter_tensor(output, torch.ones(n * SIZE))
    same(outputs[1], [SIZE] * 3)


def check_broadcast_gather_scatter():
    root = SIZE - 1
    for dtype in [torch.bool, torch.complex64, *INTEGERS, *FLOATS, *FLOAT8]:
        tensor = torch.full((2, 3), root == RANK).to(dtype)
        dist.broadcast(tensor, root)
        assert tensor.to(torch.complex128).real.sum() == 6
    square = torch.full((3, 4), float(RANK))
    dist.broadcast(square[:, 0], root)
    same(square[1], [root, RANK, RANK, RANK])
    gathered = [torch.empty(2) for _ in range(SIZE)] if root == RANK else None
    dist.gather(torch.full((2,), float(RANK)), gathered, dst=root)
    if root == RANK:
        for rank, each in enumerate(gathered):
            same(each, [rank] * 2)
    output = torch.empty(3)
    parts = [torch.full((3,), float(rank)) for rank in range(SIZE)] if root == RANK else None
    dist.scatter(output, parts, src=root)
    same(output, [RANK] * 3)


def check_all_to_all():
    outputs = [torch.empty(2) for _ in range(SIZE)]
    dist.all_to_all(outputs, [torch.full((2,), float(10 * RANK + rank)) for rank in range(SIZE)])
    for rank, each in enumerate(outputs):
        same(each, [10 * rank + RANK] * 2)
    output = torch.empty(SIZE, 2, dtype=torch.int16)
    dist.all_to_all_single(output, torch.arange(SIZE * 2, dtype=torch.int16).view(SIZE, 2))
    same(output, [[2 * RANK, 2 * RANK + 1]] * SIZE)
    give = [rank + 1 for rank in range(SIZE)]
    output = torch.empty(SIZE * (RANK + 1), 2)
    dist.all_to_all_single(output, torch.full((sum(give), 2), float(RANK)), [RANK + 1] * SIZE, give)
    same(output[:, 1], [rank for rank in range(SIZE) for _ in range(RANK + 1)])


def check_send_and_receive():
    if SIZE == 1:
        return
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for turn in range(5):
        mine, theirs = torch.full((turn + 1,), float(RANK)), torch.empty(turn + 1)
        works = [dist.isend(mine, after, tag=7), dist.irecv(theirs, before, tag=7)]
        for work in works:
            work.wait()
        same(theirs, [before] * (turn + 1))
    # By tag, not by order.
    if RANK == 0:
        works = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in (1, 2)]
        for work in works:
            work.wait()
    if RANK == 1:
        for tag in (2, 1):
            received = torch.empty(1)
            assert dist.recv(received, 0, tag=tag) == 0
            same(received, [tag])
    both = [torch.full((3,), float(RANK)), torch.empty(3)]
    operations = [dist.P2POp(dist.isend, both[0], after), dist.P2POp(dist.irecv, both[1], before)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(both[1], [before] * 3)


def check_receive_from_any_rank():
    if SIZE == 1:
        return
    if RANK:
        dist.send(torch.tensor([float(RANK)]), 0, tag=RANK % 2)
    else:
        for tag, count in ((1, SIZE // 2), (0, (SIZE - 1) // 2)):
            found = set()
            for _ in range(count):
                received = torch.empty(1)
                source = dist.recv(received, tag=tag)
                same(received, [source])
                found.add(source)
            assert found == {rank for rank in range(1, SIZE) if rank % 2 == tag}
    dist.barrier()


def check_barriers():
    for _ in range(3):
        dist.barrier()
    assert dist.barrier(async_op=True).wait()
    dist.monitored_barrier(timeout=timedelta(seconds=60)) if RELEASE >= (2, 15) else dist.barrier()


def check_objects():
    everyones = [None] * SIZE
    dist.all_gather_object(everyones, {"rank": RANK, "text": "x" * RANK})
    assert everyones == [{"rank": rank, "text": "x" * rank} for rank in range(SIZE)]
    objects = [RANK, "text"] if RANK == 0 else [None, None]
    dist.broadcast_object_list(objects, 0)
    assert objects == [0, "text"]
    gathered = [None] * SIZE if RANK == 0 else None
    dist.gather_object((RANK,), gathered)
    assert RANK or gathered == [(rank,) for rank in range(SIZE)]
    scattered = [None]
    dist.scatter_object_list(scattered, [str(rank) for rank in range(SIZE)] if RANK == 0 else None)
    assert scattered == [str(RANK)]


def check_many_in_flight():
    tensors = [torch.full((6,), float(RANK + n)) for n in range(20)]
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    for n in (*range(19, 10, -1), *range(11)):
        assert works[n].wait()
        assert works[n].is_completed() and works[n].is_success()
        same(tensors[n], [SIZE * (SIZE - 1) / 2 + n * SIZE] * 6)


def check_futures():
    tensors = [torch.full((6,), float(RANK + n)) for n in range(20)]
    futures = [dist.all_reduce(each, async_op=True).get_future() for each in tensors]
    doubled = futures[3].then(lambda done: 2 * done.value()[0])
    for future in futures:
        future.wait()
    same(doubled.wait(), [SIZE * (SIZE - 1) + 6 * SIZE] * 6)
    same(tensors[19], [SIZE * (SIZE - 1) / 2 + 19 * SIZE] * 6)


def check_groups():
    even = dist.new_group(list(range(0, SIZE, 2)))
    odd = dist.new_group(list(range(1, SIZE, 2))) if SIZE > 1 else None
    again = dist.new_group(list(range(0, SIZE, 2)))
    mine = even if RANK % 2 == 0 else odd
    members = list(range(RANK % 2, SIZE, 2))
    tensor = torch.tensor([float(RANK)])
    dist.all_reduce(tensor, group=mine)
    same(tensor, [sum(members)])
    everyones = [torch.empty(1) for _ in members]
    dist.all_gather(everyones, torch.tensor([float(RANK)]), group=mine)
    same(torch.cat(everyones), members)
    tensor = torch.tensor([float(RANK)])
    dist.broadcast(tensor, members[-1], group=mine)
    same(tensor, [members[-1]])
    if RANK % 2 == 0:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=again)
        same(tensor, [len(members)])
        dist.barrier(group=even)
    else:
        assert even == dist.GroupMember.NON_GROUP_MEMBER
    dist.destroy_process_group(mine)


# Before the next check: where some ranks make a group among themselves, gloo does not connect those of all ranks that
# come after it, which PyTorch then names differently by rank.
def check_together_with_other_backends():
    if RELEASE < (2, 15):
        return
    group = dist.new_group(backend="cpu:hora,cuda:gloo")
    tensor = torch.tensor([float(RANK)])
    dist.all_reduce(tensor, group=group)
    same(tensor, [SIZE * (SIZE - 1) / 2])
    work = dist.all_reduce(tensor, group=group, async_op=True)
    assert work.wait()
    gloo = dist.new_group(backend="gloo")
    dist.all_reduce(tensor, group=gloo)


def check_groups_without_the_others():
    if SIZE < 2 or RANK not in (0, SIZE - 1):
        return
    pair = dist.new_group([0, SIZE - 1], use_local_synchronization=True)
    tensor = torch.tensor([float(RANK)])
    dist.all_reduce(tensor, group=pair)
    same(tensor, [SIZE - 1])
    alone = dist.new_group([RANK], use_local_synchronization=True)
    tensor = torch.tensor([float(RANK)])
    dist.all_reduce(tensor, group=alone)
    same(tensor, [RANK])


def check_groups_in_another_order():
    if RELEASE < (2, 15):
        return
    ranks = list(range(SIZE))[::-1]
    group = dist.distributed_c10d._new_group_with_tag(ranks, sort_ranks=False)
    assert dist.get_rank(group) == SIZE - 1 - RANK
    everyones = torch.empty(SIZE)
    dist.all_gather_into_tensor(everyones, torch.tensor([float(RANK)]), group=group)
    same(everyones, ranks)
    output = torch.empty(1)
    dist.reduce_scatter_tensor(output, torch.arange(float(SIZE)), group=group)
    same(output, [SIZE * (SIZE - 1 - RANK)])
    output = torch.empty(1, dtype=torch.int64)
    dist.reduce_scatter_tensor(output, torch.arange(SIZE), op=dist.ReduceOp.BOR, group=group)
    same(output, [SIZE - 1 - RANK])
    outputs = torch.empty(SIZE)
    dist.all_to_all_single(outputs, torch.arange(float(SIZE)) + 10 * RANK, group=group)
    same(outputs, [10 * rank + SIZE - 1 - RANK for rank in ranks])
    outputs = [torch.empty(1) for _ in ranks] if RANK == 0 else None
    dist.gather(torch.tensor([float(RANK)]), outputs, dst=0, group=group)
    if RANK == 0:
        same(torch.cat(outputs), ranks)


def check_functional():
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    same(functional.all_reduce(torch.tensor([float(RANK)]), "sum", group) + 0, [SIZE * (SIZE - 1) / 2])
    same(functional.all_gather_tensor(torch.tensor([float(RANK)]), 0, group) + 0, list(range(SIZE)))
    same(functional.reduce_scatter_tensor(torch.arange(float(SIZE)), "sum", 0, group) + 0, [RANK * SIZE])
    if RELEASE < (2, 4):
        return
    ones = [1] * SIZE
    same(functional.all_to_all_single(torch.arange(float(SIZE)), ones, ones, group) + 0, [RANK] * SIZE)


def check_mistakes():
    with pytest.raises((ValueError, RuntimeError)):
        dist.all_gather_into_tensor(torch.empty(SIZE + 1), torch.empty(1))
    with pytest.raises(ValueError, match="takes tensors in host memory"):
        dist.group.WORLD.broadcast([torch.empty(1, device="meta")], dist.BroadcastOptions())
    if hasattr(torch, "uint64"):
        with pytest.raises(ValueError, match="uint64 cannot be reduced"):
            dist.all_reduce(torch.empty(1, dtype=torch.uint64), OPS.MAX)
    if SIZE > 1 and RANK < 2:
        with pytest.raises(RuntimeError, match=r"rank . has"):
            if RANK:
                dist.send(torch.empty(1), 0, tag=99)
            else:
                dist.recv(torch.empty(2), 1, tag=99)
    if SIZE > 1:
        with pytest.raises(RuntimeError, match=r"differs: rank . has all_reduce"):
            dist.all_reduce(torch.empty(3 if RANK else 4))


def check_timeout():
    if SIZE == 1:
        return
    group = dist.new_group(timeout=timedelta(seconds=1))
    if RANK == 0:
        with pytest.raises(
            RuntimeError, match="has waited for the other ranks for 1 s, the timeout; not in it: rank 1"
        ):
            dist.all_reduce(torch.ones(1), group=group)
        with pytest.raises(RuntimeError, match=r"for 0.5 s"):
            dist.all_reduce(torch.ones(1), group=group, async_op=True).wait(timedelta(seconds=0.5))
    dist.barrier()
    if RANK:
        dist.all_reduce(torch.ones(1), group=group)
        dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()


def check_ddp():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    reference = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    reference.load_state_dict(model.state_dict())
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001)
    samples = torch.randn(SIZE * 4, 8)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (ddp, reference)]
    for _ in range(4):
        ddp(samples[RANK * 4 : RANK * 4 + 4]).square().mean().backward()
        reference(samples).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for mine, its in zip(ddp.parameters(), reference.parameters()):
        assert torch.allclose(mine, its, atol=1e-5), (mine, its)
    with ddp.no_sync():
        ddp(samples[:1]).sum().backward()


def check_fsdp2_and_dtensor():
    if RELEASE < (2, 6):
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (SIZE,))
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    expected = model(torch.ones(2, 8)).detach()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.ones(2, 8))
    assert torch.allclose(loss, expected, atol=1e-5)
    loss.sum().backward()
    optimizer.step()
    whole = torch.arange(float(SIZE * SIZE * 2)).view(SIZE * 2, SIZE)
    shards = distribute_tensor(whole, mesh, [Shard(0)])
    assert shards.to_local().shape[0] == 2
    assert torch.equal(shards.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(shards.redistribute(mesh, [Shard(1)]).to_local(), whole[:, RANK : RANK + 1])


def check_ends():
    dist.barrier()
    dist.destroy_process_group()
    assert not dist.is_initialized()
