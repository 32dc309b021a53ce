# SPDX-License-Identifier: Apache-2.0
"""The collectives on PyTorch tensors: numbers, dtypes, shapes, gradients, errors."""

import threading
import warnings

import numpy as np
import torch

import horovod.torch as hvd
from hora.exceptions import TensorMismatchError
from support.expect import raises

FLOATS = [torch.float16, torch.float32, torch.float64, torch.bfloat16]
INTS = [torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16]
SHAPES = [(), (1,), (17,), (3, 5), (2, 3, 4), (0,), (4, 0, 2)]


def of_rank(rank, shape, dtype, low=1):
    """The tensor that a rank contributes: small whole numbers, exact in every dtype."""
    count = int(np.prod(shape)) if shape else 1
    values = (torch.arange(count) * 3 + rank * 2) % 5 + low
    return values.reshape(shape).to(dtype)


def all_of(shape, dtype, low=1):
    return [of_rank(rank, shape, dtype, low) for rank in range(hvd.size())]


def same(actual, expected, tolerance=None):
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    if tolerance is None:
        assert torch.equal(actual, expected), (actual, expected)
    else:
        assert torch.allclose(actual.double(), expected.double(), rtol=tolerance, atol=tolerance), (actual, expected)


def check_topology():
    assert 0 <= hvd.rank() < hvd.size()
    assert 0 <= hvd.local_rank() < hvd.local_size() <= hvd.size()
    assert 0 <= hvd.cross_rank() < hvd.cross_size()
    assert hvd.is_initialized() and hvd.is_homogeneous() in (True, False)
    ranks = hvd.allgather(torch.tensor([hvd.rank()]))
    assert ranks.tolist() == list(range(hvd.size()))


def check_built_queries():
    assert hvd.gloo_built() in (True, False)
    assert isinstance(hvd.nccl_built(), int)
    for query in (
        hvd.mpi_built,
        hvd.mpi_enabled,
        hvd.gloo_enabled,
        hvd.cuda_built,
        hvd.rocm_built,
        hvd.ddl_built,
        hvd.ccl_built,
    ):
        assert query() in (True, False)
    assert not hvd.rocm_built() and not hvd.ddl_built()
    if not hvd.mpi_enabled():
        raises(ValueError, hvd.mpi_threads_supported)
    from hora import describe

    assert describe()["version"]


def check_allreduce_sum_every_dtype():
    for dtype in FLOATS + INTS:
        for shape in SHAPES:
            expected = sum(t.double() for t in all_of(shape, dtype)).to(dtype)
            tensor = of_rank(hvd.rank(), shape, dtype)
            before = tensor.clone()
            same(hvd.allreduce(tensor, op=hvd.Sum), expected)
            same(tensor, before)


def check_allreduce_average():
    for dtype in FLOATS:
        tensor = of_rank(hvd.rank(), (3, 4), dtype)
        expected = sum(t.double() for t in all_of((3, 4), dtype)) / hvd.size()
        tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-6)
        same(hvd.allreduce(tensor), expected.to(dtype), tolerance)
        same(hvd.allreduce(tensor, op=hvd.Average), expected.to(dtype), tolerance)


def check_integer_average_truncates():
    for value in (-11, 11):
        contributions = [value if rank == 0 else 0 for rank in range(hvd.size())]
        tensor = torch.tensor([contributions[hvd.rank()]])
        assert hvd.allreduce(tensor, op=hvd.Average).item() == int(value / hvd.size())


def check_average_argument():
    tensor = torch.ones(3) * (hvd.rank() + 1)
    total = hvd.size() * (hvd.size() + 1) / 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        same(hvd.allreduce(tensor, average=False), torch.full((3,), total))
        same(hvd.allreduce(tensor, average=True), torch.full((3,), total / hvd.size()), 1e-6)
    assert any(issubclass(each.category, DeprecationWarning) for each in caught)
    raises(ValueError, hvd.allreduce, tensor, average=True, op=hvd.Sum)


def check_min_max_product():
    for dtype in FLOATS + INTS:
        tensors = all_of((7,), dtype)
        own = tensors[hvd.rank()]
        stacked = torch.stack([t.double() for t in tensors])
        same(hvd.allreduce(own, op=hvd.Min), stacked.amin(0).to(dtype))
        same(hvd.allreduce(own, op=hvd.Max), stacked.amax(0).to(dtype))
        same(hvd.allreduce(own, op=hvd.Product), stacked.prod(0).to(dtype))


def check_bool():
    tensor = torch.tensor([True, False, hvd.rank() == 0])
    same(hvd.allreduce(tensor, op=hvd.Sum), torch.tensor([True, False, True]))
    same(hvd.allreduce(tensor, op=hvd.Max), torch.tensor([True, False, True]))
    same(hvd.allreduce(tensor, op=hvd.Product), torch.tensor([True, False, hvd.size() == 1]))
    same(hvd.broadcast(tensor, 0), torch.tensor([True, False, True]))
    assert hvd.allgather(tensor).shape == (3 * hvd.size(),)


def check_scale_factors():
    tensor = of_rank(hvd.rank(), (5,), torch.float32)
    total = sum(all_of((5,), torch.float32))
    same(hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), total * 2.0, 1e-6)
    same(hvd.allreduce(tensor, op=hvd.Average, prescale_factor=2.0), total * 2 / hvd.size(), 1e-6)
    same(hvd.reducescatter(tensor.repeat(hvd.size()), op=hvd.Sum, postscale_factor=3.0), total * 3.0, 1e-6)


def check_scaling_gives_the_bits_of_the_framework():
    """Programs compare exactly with `tensor * factor`; the other ranks add zeros, which rounds nothing."""
    torch.manual_seed(11)
    values = torch.randn(1000)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for factor in (1 / 3, 0.7, -1e-3):
            own = values.to(dtype)
            wide = own.double() if dtype == torch.float64 else own.float()
            expected = (wide * torch.tensor(factor, dtype=wide.dtype)).to(dtype)
            own = own if hvd.rank() == 0 else torch.zeros_like(own)
            for scales in ({"prescale_factor": factor}, {"postscale_factor": factor}):
                reduced = hvd.allreduce(own, op=hvd.Sum, **scales)
                assert torch.equal(reduced, expected), (dtype, scales, (reduced - expected).abs().max())
                scattered = hvd.reducescatter(own, op=hvd.Sum, **scales)
                assert torch.equal(hvd.allgather(scattered), expected), (dtype, scales)


def check_in_place():
    for shape in SHAPES:
        tensor = of_rank(hvd.rank(), shape, torch.float32)
        answer = hvd.allreduce_(tensor, op=hvd.Sum)
        assert answer is tensor
        same(tensor, sum(all_of(shape, torch.float32)))
        handle = hvd.allreduce_async_(tensor, op=hvd.Sum)
        assert hvd.synchronize(handle) is tensor
        same(tensor, sum(all_of(shape, torch.float32)) * hvd.size())


def check_non_contiguous():
    base = of_rank(hvd.rank(), (4, 6), torch.float32)
    total = sum(all_of((4, 6), torch.float32))
    same(hvd.allreduce(base.t(), op=hvd.Sum), total.t().contiguous())
    same(hvd.allreduce(base[:, ::2], op=hvd.Sum), total[:, ::2].contiguous())
    view = base.clone()[:, 1::3]
    hvd.allreduce_(view, op=hvd.Sum)
    same(view.contiguous(), total[:, 1::3].contiguous())
    whole = base.clone()
    hvd.broadcast_(whole[1:3, :2], 0)
    expected = base.clone()
    expected[1:3, :2] = of_rank(0, (4, 6), torch.float32)[1:3, :2]
    same(whole, expected)
    same(hvd.allgather(base.t()[:2]), torch.cat([each.t()[:2] for each in all_of((4, 6), torch.float32)]))
    same(hvd.allreduce(torch.ones(1).expand(8), op=hvd.Sum), torch.full((8,), float(hvd.size())))


def check_requires_grad_and_parameters():
    parameter = torch.nn.Parameter(of_rank(hvd.rank(), (3,), torch.float32))
    hvd.broadcast_(parameter, 0)
    same(parameter.detach(), of_rank(0, (3,), torch.float32))
    hvd.allreduce_(parameter, op=hvd.Sum)
    same(parameter.detach(), of_rank(0, (3,), torch.float32) * hvd.size())
    assert parameter.requires_grad and parameter.is_leaf
    with torch.no_grad():
        assert not hvd.allreduce(parameter).requires_grad


def check_many_in_flight_in_any_order():
    names = [f"tensor.{index}" for index in range(200)]
    order = list(range(200))
    if hvd.rank() % 2:
        order.reverse()
    handles = {}
    for index in order:
        tensor = torch.full((index % 13 + 1,), float(index + hvd.rank()))
        handles[index] = hvd.allreduce_async(tensor, name=names[index], op=hvd.Sum)
    ranks = hvd.size() * (hvd.size() - 1) / 2
    for index in range(200):
        same(hvd.synchronize(handles[index]), torch.full((index % 13 + 1,), float(index * hvd.size() + ranks)))


def check_poll_and_unknown_handles():
    handle = hvd.allreduce_async(torch.ones(1000), op=hvd.Sum)
    while not hvd.poll(handle):
        pass
    same(hvd.synchronize(handle), torch.full((1000,), float(hvd.size())))
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(10**9) is None


def check_tensor_freed_early():
    handles = []
    for index in range(50):
        handles.append(hvd.allreduce_async(torch.full((5000,), float(index)), name=f"early.{index}", op=hvd.Sum))
        torch.full((5000,), -1.0)  # takes the memory that the tensor would leave behind
    for index, handle in enumerate(handles):
        same(hvd.synchronize(handle), torch.full((5000,), float(index * hvd.size())))


def check_duplicate_name():
    handle = None
    if hvd.size() == 1:
        return  # done before the second one comes
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
        raises(ValueError, hvd.allreduce_async, torch.ones(2), name="twice")
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
    same(hvd.synchronize(handle), torch.ones(2))


def check_duplicate_group_leaves_nothing_behind():
    if hvd.size() == 1:
        return
    pair = [torch.ones(2), torch.ones(3)]
    if hvd.rank() == 0:
        handle = hvd.grouped_allreduce_async(pair, name="pair")
        raises(ValueError, hvd.grouped_allreduce_async, pair, name="pair")
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.grouped_allreduce_async(pair, name="pair")
    same(hvd.synchronize(handle)[1], torch.ones(3))


def check_grouped_allreduce():
    tensors = [of_rank(hvd.rank(), (n + 1, 2), torch.float32) for n in range(5)]
    totals = [sum(all_of((n + 1, 2), torch.float32)) for n in range(5)]
    for actual, total in zip(hvd.grouped_allreduce(tensors, op=hvd.Sum), totals):
        same(actual, total)
    handle = hvd.grouped_allreduce_async(tensors, op=hvd.Average, name="averages")
    for actual, total in zip(hvd.synchronize(handle), totals):
        same(actual, total / hvd.size(), 1e-6)
    copies = [tensor.clone() for tensor in tensors]
    answers = hvd.grouped_allreduce_(copies, op=hvd.Sum)
    for answer, copy, total in zip(answers, copies, totals):
        assert answer is copy
        same(copy, total)
    handle = hvd.grouped_allreduce_async_(copies, op=hvd.Max)
    assert hvd.synchronize(handle)[0] is copies[0]
    mixed = [torch.ones(2), torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int32)]
    for actual, tensor in zip(hvd.grouped_allreduce(mixed, op=hvd.Sum), mixed):
        same(actual, tensor * hvd.size())
    raises(ValueError, hvd.grouped_allreduce, [])


def check_compression():
    tensor = of_rank(hvd.rank(), (6,), torch.float32) / 4
    total = sum(all_of((6,), torch.float32)) / 4
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        same(hvd.allreduce(tensor, op=hvd.Sum, compression=compression), total, 1e-2)
        same(hvd.grouped_allreduce([tensor], op=hvd.Sum, compression=compression)[0], total, 1e-2)
    wire, context = hvd.Compression.none.compress(tensor)
    assert wire is tensor and hvd.Compression.none.decompress(wire, context) is tensor
    wire, context = hvd.Compression.fp16.compress(tensor)
    assert wire.dtype == torch.float16
    assert hvd.Compression.fp16.decompress(wire, context).dtype == torch.float32
    integers, context = hvd.Compression.fp16.compress(torch.arange(3))
    assert integers.dtype == torch.int64 and context is None
    rows = tensor.repeat(hvd.size(), 1)
    same(hvd.reducescatter(rows, op=hvd.Sum, compression=hvd.Compression.fp16)[0], total, 1e-2)


def check_compression_leaves_short_types_alone():
    """What has two bytes gains nothing, and loses its large or its fine values."""
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for values in (torch.tensor([1e5, 1e-30], dtype=torch.bfloat16), torch.tensor([1.0009765625]).half()):
            wire, context = compression.compress(values)
            assert wire is values and context is None
            same(hvd.allreduce(values, op=hvd.Average, compression=compression), values)
    large = torch.full((2,), 60000.0)
    same(hvd.allreduce(large, op=hvd.Average, compression=hvd.Compression.fp16), large, 1e-3)


def check_averages_of_the_largest_numbers():
    for values in (
        torch.tensor([65504.0, 40000.0, -65504.0, 1e-6]).half(),
        torch.tensor([3.3e38, -3.3e38]).bfloat16(),
        torch.tensor([200, 255, 0], dtype=torch.uint8),
        torch.tensor([127, -128], dtype=torch.int8),
        torch.tensor([2**31 - 1, -(2**31)], dtype=torch.int32),
        torch.tensor([2**63 - 1, -(2**63), 2**53 + 1]),
    ):
        same(hvd.allreduce(values, op=hvd.Average), values)
        same(hvd.grouped_allreduce([values, values.flip(0)], op=hvd.Average)[1], values.flip(0))
        own = values.clone()
        same(hvd.synchronize(hvd.allreduce_async_(own, op=hvd.Average)), values)
        same(hvd.reducescatter(values.repeat(hvd.size(), 1), op=hvd.Average)[0], values)
    infinite = torch.tensor([float("inf") if hvd.rank() == 0 else 1.0]).half()
    same(hvd.allreduce(infinite, op=hvd.Average), torch.tensor([float("inf")]).half())


def check_minimum_and_maximum_keep_a_nan():
    for dtype in FLOATS:
        for rank in range(hvd.size()):
            values = torch.arange(99.0).to(dtype)
            if hvd.rank() == rank:
                values[3::7] = float("nan")
            for op in (hvd.Min, hvd.Max):
                is_nan = hvd.allreduce(values, op=op).isnan().nonzero().flatten().tolist()
                assert is_nan == list(range(3, 99, 7)), (dtype, rank, op)


def of_every_dtype():
    names = "complex64 complex128 complex32 uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float8_e8m0fnu"
    names += " float4_e2m1fn_x2 uint4 int2"
    for name in names.split():
        dtype = getattr(torch, name, None)
        if dtype is not None:
            size = torch.empty(1, dtype=dtype).element_size()
            yield dtype, lambda of, dtype=dtype, size=size: (torch.arange(6 * size) + of).byte().view(dtype).view(3, 2)


def same_bytes(actual, expected):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert torch.equal(actual.contiguous().view(torch.uint8), expected.view(torch.uint8))


def check_copies_of_every_dtype():
    for dtype, make in of_every_dtype():
        own, size = make(hvd.rank()), hvd.size()
        for root in range(size):
            same_bytes(hvd.broadcast(own, root), make(root))
            target = own.view(torch.uint8).clone().view(dtype)
            assert hvd.broadcast_(target, root) is target
            same_bytes(target, make(root))
        gathered = hvd.allgather(own)
        assert gathered.shape == (3 * size, 2)
        for rank in range(size):
            same_bytes(gathered[3 * rank : 3 * rank + 3], make(rank))
        both = hvd.grouped_allgather([own, torch.ones(1)])
        assert both[0].dtype == dtype and both[1].dtype == torch.float32
        received, splits = hvd.alltoall(own, splits=[1] * min(size, 3) + [0] * (size - min(size, 3)))
        assert received.dtype == dtype and splits.sum() == len(received)
        sent = hvd.broadcast_object({"t": own, "p": [own.view(-1)[0]]}, hvd.size() - 1)
        same_bytes(sent["t"], make(hvd.size() - 1))
        assert sent["p"][0].shape == ()
        raises(ValueError, hvd.allgather, own.view(-1)[0])
        if dtype != getattr(torch, "uint16", None):
            raises(ValueError, hvd.allreduce, own, op=hvd.Max)
    copied = {"w": torch.full((2,), 1j * hvd.rank())}
    hvd.broadcast_parameters(copied, root_rank=0)
    assert torch.equal(copied["w"], torch.zeros(2, dtype=torch.complex64))
    if hvd.size() > 1:
        odd = torch.ones(2, dtype=torch.complex64 if hvd.rank() else torch.float64)
        raises(TensorMismatchError, hvd.broadcast, odd, 0, name="odd")


def check_sums_of_complex_numbers():
    total = sum(range(1, hvd.size() + 1))
    for dtype in (torch.complex64, torch.complex128):
        own = torch.tensor([[1 + 2j, -3j], [0.5, 4]], dtype=dtype)
        for mine, whole in ((own, own), (own.t(), own.t()), (own.conj(), own.conj().resolve_conj())):
            same(hvd.allreduce(mine * (hvd.rank() + 1), op=hvd.Sum), whole * total)
            same(hvd.allreduce(mine, op=hvd.Average), whole, 1e-6)
            scattered = hvd.reducescatter(mine.repeat(hvd.size(), 1), op=hvd.Sum)
            same(scattered, whole * hvd.size())
        target = own.clone().t()
        hvd.allreduce_(target, op=hvd.Sum)
        same(target, own.t() * hvd.size())
        differentiated = own.clone().requires_grad_()
        hvd.allreduce(differentiated, op=hvd.Sum).abs().sum().backward()
        assert differentiated.grad.dtype == dtype
        for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
            assert "Average and Sum" in str(raises(ValueError, hvd.allreduce, own, op=op))


def check_default_devices_and_dtypes():
    """A program may create its tensors on another device by default; ours name theirs."""

    def operations():
        own = torch.full((2, 2), 3.0, device="cpu", dtype=torch.float32)
        assert torch.equal(hvd.allgather(own), torch.full((2 * hvd.size(), 2), 3.0, device="cpu", dtype=torch.float32))
        hvd.allreduce(own)
        hvd.broadcast(own, 0)
        hvd.broadcast_(own, 0)
        even = own.repeat(hvd.size(), 1)
        hvd.reducescatter(even)
        received, splits = hvd.alltoall(even, splits=[2] * hvd.size())
        assert received.device.type == splits.device.type == "cpu"
        own.requires_grad_()
        if not torch.is_inference_mode_enabled():
            hvd.allgather(own).sum().backward()
            hvd.alltoall(own.repeat(hvd.size(), 1)).sum().backward()
            assert own.grad.device.type == "cpu"
        sparse = torch.eye(3, device="cpu", dtype=torch.float32).to_sparse()
        total = hvd.sparse_allreduce_async(sparse, "sparse", hvd.Sum)()
        assert total.to_dense().sum() == 3 * hvd.size() and total.device.type == "cpu"
        assert hvd.broadcast_object({"t": own.detach() + hvd.rank()}, 0)["t"].device.type == "cpu"
        assert len(hvd.allgather_object(own.detach())) == hvd.size()
        if torch.is_inference_mode_enabled():
            return
        model = torch.nn.Linear(2, 2, device="cpu", dtype=torch.float32)
        with torch.no_grad():
            optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
        model(own).sum().backward()
        optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        for state in optimizer.state.values():
            assert all(value.device.type == "cpu" for value in state.values())

    with torch.inference_mode():
        operations()
    torch.set_default_dtype(torch.float64)
    try:
        operations()
    finally:
        torch.set_default_dtype(torch.float32)
    if hasattr(torch, "set_default_device"):
        with torch.device("meta"):
            operations()
        torch.set_default_device("meta")
        try:
            operations()
        finally:
            torch.set_default_device(None)


def check_sparse_allreduce():
    # Rank r has rows r and r + 1 of a (size + 1) x 3 matrix; neighbours share one.
    row = hvd.rank()
    indices = torch.tensor([[row, row + 1]])
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) * (row + 1)
    sparse = torch.sparse_coo_tensor(indices, values, (hvd.size() + 1, 3))
    dense = hvd.allreduce(sparse.to_dense(), op=hvd.Sum)
    for op, factor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
        result = hvd.sparse_allreduce_async(sparse, name=f"sparse.{op}", op=op)()
        assert result.is_sparse
        same(result.to_dense(), dense / factor, 1e-6)
    numbers = torch.sparse_coo_tensor(indices, torch.full((2, 3), 5), sparse.shape)
    result = hvd.sparse_allreduce_async(numbers, name="sparse.integers", op=hvd.Average)()
    same(result.to_dense(), hvd.allreduce(numbers.to_dense()))
    raises(ValueError, hvd.sparse_allreduce_async, sparse, "sparse.max", hvd.Max)
    raises(ValueError, hvd.allreduce, sparse)


def check_sparse_tensors_whose_shapes_differ():
    """Every rank learns of it, whether or not the others' indices would fit in its own tensor."""
    rows = 3 + hvd.rank()
    wait = hvd.sparse_allreduce_async(
        torch.sparse_coo_tensor([[0, 1]], torch.ones(2, 3), (rows, 3)), name="sparse.shapes", op=hvd.Sum
    )
    if hvd.size() == 1:
        assert wait().shape == (3, 3)
        return
    error = raises(TensorMismatchError, wait)
    expected = f"'sparse.shapes': the shape differs: this rank has [{rows}], another has [{4 if rows == 3 else 3}]"
    assert expected in str(error), error


def check_allgather():
    for dtype in FLOATS + INTS:
        tensor = of_rank(hvd.rank(), (2, 3), dtype)
        same(hvd.allgather(tensor), torch.cat(all_of((2, 3), dtype)))
    mine = torch.full((hvd.rank() + 1, 2), float(hvd.rank()))
    expected = torch.cat([torch.full((rank + 1, 2), float(rank)) for rank in range(hvd.size())])
    same(hvd.allgather(mine), expected)
    some = mine if hvd.rank() else mine[:0]
    same(hvd.allgather(some), expected[1:])
    same(hvd.allgather(mine[:0]), expected[:0])
    same(hvd.synchronize(hvd.allgather_async(mine, name="rows")), expected)
    both = hvd.grouped_allgather([mine, mine.int()], name="both")
    same(both[0], expected)
    same(both[1], expected.int())
    both = hvd.synchronize(hvd.grouped_allgather_async([mine, mine.int()]))
    same(both[1], expected.int())
    raises(ValueError, hvd.allgather, torch.tensor(1.0))


def check_large_results():
    rows = torch.arange(300_000, dtype=torch.float32) + hvd.rank()
    gathered = hvd.allgather(rows)
    for rank in range(hvd.size()):
        same(gathered[rank * 300_000 : (rank + 1) * 300_000], torch.arange(300_000, dtype=torch.float32) + rank)
    kept = hvd.allgather(rows)
    for _ in range(3):
        hvd.allgather(rows * 0)
    same(kept, gathered)
    same(hvd.allreduce(rows, op=hvd.Max), torch.arange(300_000).float() + hvd.size() - 1)


def check_broadcast():
    for root in range(hvd.size()):
        for dtype in FLOATS + INTS:
            for shape in SHAPES:
                tensor = of_rank(hvd.rank(), shape, dtype)
                same(hvd.broadcast(tensor, root), of_rank(root, shape, dtype))
                same(tensor, of_rank(hvd.rank(), shape, dtype))
        tensor = of_rank(hvd.rank(), (4,), torch.float32)
        assert hvd.broadcast_(tensor, root) is tensor
        same(tensor, of_rank(root, (4,), torch.float32))
        tensor = of_rank(hvd.rank(), (4,), torch.float32)
        same(hvd.synchronize(hvd.broadcast_async(tensor, root, name="b")), of_rank(root, (4,), torch.float32))
        assert hvd.synchronize(hvd.broadcast_async_(tensor, root)) is tensor
    raises(ValueError, hvd.broadcast, torch.ones(1), hvd.size())
    raises(ValueError, hvd.broadcast, torch.ones(1), -1)


def check_alltoall():
    size, rank = hvd.size(), hvd.rank()
    # Equal parts: two rows for each rank, numbered by sender and receiver.
    mine = torch.tensor([[rank * 100 + to, part] for to in range(size) for part in range(2)])
    expected = torch.tensor([[frm * 100 + rank, part] for frm in range(size) for part in range(2)])
    same(hvd.alltoall(mine), expected)
    # Unequal: rank r sends i + 1 rows to rank i, the value names the sender.
    splits = torch.tensor([to + 1 for to in range(size)], dtype=torch.int32)
    rows = torch.full((int(splits.sum()), 2), float(rank))
    received, received_splits = hvd.alltoall(rows, splits=splits)
    same(received, torch.cat([torch.full((rank + 1, 2), float(frm)) for frm in range(size)]))
    assert received_splits.tolist() == [rank + 1] * size
    # Some rows stay at home; some ranks get nothing.
    splits = [1 if to == 0 else 0 for to in range(size)]
    received, received_splits = hvd.alltoall(torch.full((3,), float(rank)), splits=splits)
    same(received, torch.arange(size).float() if rank == 0 else torch.empty(0))
    handle = hvd.alltoall_async(torch.arange(size), splits=[1] * size, name="exchange")
    same(hvd.synchronize(handle)[0], torch.full((size,), rank))
    raises(ValueError, hvd.alltoall, torch.arange(size), splits=[2] * size)
    raises(ValueError, hvd.alltoall, torch.tensor(1))
    if size > 1:
        raises(ValueError, hvd.alltoall, torch.arange(size + 1))
        raises(ValueError, hvd.alltoall, torch.arange(size), splits=[size])


def check_reducescatter():
    size, rank = hvd.size(), hvd.rank()
    for dtype in [*FLOATS, torch.int32, torch.int64]:
        for rows in (size, 2 * size + 1, 3 * size - 1):
            total = sum(t.double() for t in all_of((rows, 3), dtype))
            counts = [rows // size + (1 if each < rows % size else 0) for each in range(size)]
            start = sum(counts[:rank])
            own = total[start : start + counts[rank]]
            tensor = of_rank(rank, (rows, 3), dtype)
            same(hvd.reducescatter(tensor, op=hvd.Sum), own.to(dtype))
            if dtype.is_floating_point:
                tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-6)
                same(hvd.reducescatter(tensor), (own / size).to(dtype), tolerance)
    tensors = [torch.ones(size, 2) * (rank + 1), torch.ones(2 * size)]
    results = hvd.grouped_reducescatter(tensors, op=hvd.Sum)
    same(results[0], torch.full((1, 2), size * (size + 1) / 2))
    same(results[1], torch.full((2,), float(size)))
    same(hvd.synchronize(hvd.grouped_reducescatter_async(tensors, op=hvd.Average))[1], torch.ones(2))
    same(hvd.synchronize(hvd.reducescatter_async(tensors[1], op=hvd.Sum, name="rs")), torch.full((2,), float(size)))
    few = torch.ones(1, 4)  # fewer rows than ranks: the others get none
    assert hvd.reducescatter(few, op=hvd.Sum).shape == ((1, 4) if rank == 0 else (0, 4))
    raises(ValueError, hvd.reducescatter, torch.tensor(1.0))
    raises(ValueError, hvd.reducescatter, torch.ones(size), op=hvd.Max)


def check_mismatch_is_an_error_on_every_rank():
    if hvd.size() == 1:
        return
    odd = hvd.rank() == hvd.size() - 1
    cases = {
        "dtype": lambda: hvd.allreduce(torch.ones(4, dtype=torch.float64 if odd else torch.float32), name="m.dtype"),
        "shape": lambda: hvd.allreduce(torch.ones(5 if odd else 4), name="m.shape"),
        "op": lambda: hvd.allreduce(torch.ones(4), op=hvd.Max if odd else hvd.Min, name="m.op"),
        "scale": lambda: hvd.allreduce(torch.ones(4), prescale_factor=2.0 if odd else 1.0, name="m.scale"),
        "root": lambda: hvd.broadcast(torch.ones(4), 1 if odd else 0, name="m.root"),
        "rank of tensor": lambda: hvd.allgather(torch.ones(4, 1) if odd else torch.ones(4), name="m.dims"),
        "inner extent": lambda: hvd.allgather(torch.ones(4, 3 if odd else 2), name="m.inner"),
    }
    for what, call in cases.items():
        error = raises(hvd.HorovodInternalError, call)
        texts = hvd.allgather_object(str(error))
        assert len(set(texts)) == 1, (what, texts)
        assert "m." in texts[0], (what, texts)
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(hvd.size())))


def check_unsupported_tensors():
    raises(TypeError, hvd.allreduce, [1.0, 2.0])
    raises(TypeError, hvd.allreduce, np.ones(2))

    class Pair(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            return NotImplemented

    made_of_others = torch.Tensor._make_wrapper_subclass(Pair, (2,))
    for operation in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter):
        assert "a Pair without memory" in str(raises(ValueError, operation, made_of_others))
        assert "to_dense() first, or" in str(raises(ValueError, operation, torch.eye(2).to_sparse()))
        if torch.backends.mkldnn.is_available():
            assert "layout torch._mkldnn" in str(raises(ValueError, operation, torch.ones(2, 2).to_mkldnn()))
        if hasattr(torch, "nested"):
            nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
            assert "a nested one" in str(raises(ValueError, operation, nested))


def check_zeros_without_memory():
    """Tensors that automatic differentiation makes of zeros."""
    if not hasattr(torch, "_efficientzerotensor"):
        return
    zeros = torch._efficientzerotensor(2, dtype=torch.float32)
    same(hvd.allreduce(zeros, op=hvd.Sum), torch.zeros(2))
    same(hvd.allgather(zeros), torch.zeros(2 * hvd.size()))
    same(hvd.broadcast(zeros if hvd.rank() else torch.ones(2), 0), torch.ones(2))
    same(hvd.broadcast_object(zeros, hvd.size() - 1), torch.zeros(2))


def check_derivatives_forward():
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        raises(RuntimeError, hvd.allreduce, dual)
        raises(RuntimeError, hvd.grouped_allgather, [torch.ones(2), dual])
        same(hvd.allreduce(torch.ones(2)), torch.ones(2))


def check_objects_with_views_of_complex_numbers():
    own = torch.tensor([1 + 2j, 3 - 1j]) * (hvd.rank() + 1)
    first = torch.tensor([1 + 2j, 3 - 1j])
    sent = hvd.broadcast_object([own.conj(), own.conj().imag, own.clone().requires_grad_()], 0)
    same(sent[0].resolve_conj(), first.conj().resolve_conj())
    same(sent[1].resolve_neg(), torch.tensor([-2.0, 1.0]))
    assert sent[2].requires_grad and not sent[0].requires_grad


def check_objects():
    mine = {"rank": hvd.rank(), "data": list(range(hvd.rank() * 3000)), "f": lambda x: x + 1}
    for root in range(hvd.size()):
        got = hvd.broadcast_object(mine if hvd.rank() == root else None, root)
        assert got["rank"] == root and len(got["data"]) == root * 3000 and got["f"](1) == 2
    assert hvd.broadcast_object_fn(0)(mine)["rank"] == 0
    everything = hvd.allgather_object(mine)
    assert [each["rank"] for each in everything] == list(range(hvd.size()))
    assert hvd.broadcast_object(None, 0, name="nothing") is None
    raises(TypeError, hvd.allgather_object, threading.Lock())


def check_barrier():
    import time

    begun = time.monotonic()
    if hvd.rank() == hvd.size() - 1:
        time.sleep(0.2)
    hvd.barrier()
    waits = hvd.allgather_object(time.monotonic() - begun)
    assert min(waits) > 0.15, waits


def check_join():
    # Rank r has r + 1 batches; those that are through add zeros, and average over all ranks.
    for batch in range(hvd.rank() + 1):
        total = hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"join.{batch}")
        same(total, torch.full((3,), float(hvd.size() - batch)))
    assert hvd.join() == hvd.size() - 1
    same(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(hvd.size())))
    last = hvd.join()
    assert len(set(hvd.allgather_object(last))) == 1


def check_threads():
    """Several threads, each with its own names."""
    failures = []

    def work(number):
        try:
            for step in range(20):
                value = hvd.allreduce(torch.full((100,), float(number)), op=hvd.Sum, name=f"thread{number}.{step}")
                same(value, torch.full((100,), float(number * hvd.size())))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def check_forked_child_may_ask_for_its_rank_alone():
    import os

    place = hvd.rank(), hvd.size(), hvd.local_rank()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            assert hvd.is_initialized() and (hvd.rank(), hvd.size(), hvd.local_rank()) == place
            hvd.allreduce(torch.ones(1))
            answer = b"worked"
        except hvd.HorovodInternalError as error:
            answer = str(error).encode()
        except BaseException as error:
            answer = repr(error).encode()
        os.write(writer, answer)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    text = os.read(reader, 1000).decode()
    os.close(reader)
    assert "forked" in text, text


def check_large_results_are_to_lie_in_huge_pages():
    import os

    if not os.path.exists("/sys/kernel/mm/transparent_hugepage"):
        return
    result = hvd.allreduce(torch.ones(4 << 20), op=hvd.Sum, name="huge")
    same(result, torch.full((4 << 20,), float(hvd.size())))
    middle, inside = result.data_ptr() + (8 << 20), False
    with open("/proc/self/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            first = line.split(" ", 1)[0]
            if "-" in first:
                begin, end = (int(bound, 16) for bound in first.split("-"))
                inside = begin <= middle < end
            elif inside and line.startswith("VmFlags:"):
                assert "hg" in line.split(), line
                return
    raise AssertionError("the result lies nowhere")


def check_reducescatter_refuses_adasum_as_a_runtime_error():
    """Programs of Horovod catch either."""
    for kind in (RuntimeError, ValueError, NotImplementedError):
        raises(kind, hvd.reducescatter, torch.ones(hvd.size()), op=hvd.Adasum)
        raises(kind, hvd.grouped_reducescatter_async, [torch.ones(hvd.size())], op=hvd.Adasum)


def check_names_after_a_join():
    """The ranks that joined early have made up fewer names than the others; then all make up the same."""
    for round_number in range(2):
        for step in range(hvd.rank()):
            hvd.allreduce(torch.ones(2), op=hvd.Sum)
            hvd.synchronize(hvd.allreduce_async(torch.ones(2) * step))
        hvd.join()
        same(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(hvd.size())))
        gathered = hvd.allgather(torch.full((1,), float(hvd.rank())))
        same(gathered, torch.arange(float(hvd.size())))
        numbers = torch.full((2,), float(round_number))
        same(hvd.broadcast(numbers + hvd.rank(), 0), numbers)


def check_autograd_functions_by_their_names():
    """What programs call that have their own graph: the classes of mpi_ops."""
    from horovod.torch import mpi_ops

    size = hvd.size()
    rows = torch.arange(2.0 * size).requires_grad_()
    everyone = hvd.global_process_set
    calls = {
        "HorovodAllreduce": (rows, None, "f.reduce", hvd.Sum, 1.0, 1.0, everyone),
        "HorovodAllgather": (rows, "f.gather", everyone),
        "HorovodBroadcast": (rows, 0, "f.broadcast", everyone),
        "HorovodAlltoall": (rows, None, "f.alltoall", everyone),
        "HorovodReducescatter": (rows, "f.scatter", hvd.Sum, everyone, 1.0, 1.0),
        "HorovodGroupedAllreduce": (None, "f.reduces", hvd.Sum, 1.0, 1.0, everyone, rows, rows),
        "HorovodGroupedAllgather": ("f.gathers", everyone, rows, rows),
        "HorovodGroupedReducescatter": ("f.scatters", hvd.Sum, everyone, 1.0, 1.0, rows, rows),
    }
    expected = {
        "HorovodAllreduce": size,
        "HorovodAllgather": 1,
        "HorovodBroadcast": 1 if hvd.rank() == 0 else 0,
        "HorovodAlltoall": 1,
        "HorovodReducescatter": size,
        "HorovodGroupedAllreduce": 2 * size,
        "HorovodGroupedAllgather": 2,
        "HorovodGroupedReducescatter": 2 * size,
    }
    for name, arguments in calls.items():
        rows.grad = None
        results = getattr(mpi_ops, name).apply(*arguments)
        results = [each for each in (results if isinstance(results, tuple) else (results,)) if each.requires_grad]
        sum(each.sum() for each in results).backward()
        assert torch.equal(rows.grad, torch.full_like(rows, float(expected[name]))), (name, rows.grad)
    # The arguments that follow the tensor may be left out.
    total = mpi_ops.HorovodAllreduce.apply(rows)
    same(total, rows)
    total.sum().backward()


def check_compiled_extension_stands_in():
    from horovod.torch.mpi_ops import mpi_lib

    handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum)
    same(mpi_lib.horovod_torch_wait_and_clear(handle), torch.full((2,), float(hvd.size())))
    assert mpi_lib.horovod_torch_poll(handle)
    mpi_lib.horovod_torch_barrier()
    assert not hasattr(mpi_lib, "horovod_torch_allreduce_async_torch_FloatTensor")


def check_nothing_left_in_flight():
    from hora import operations

    assert operations.in_flight_count() == 0
