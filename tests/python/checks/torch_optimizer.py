# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer, agreeing on models and optimizers, training equal to one process's."""

import copy
import pickle
import warnings

import torch

import horovod.torch as hvd
from support.expect import agree, raises

INPUTS, OUTPUTS, BATCH = 6, 3, 4


def model_of(seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5), torch.nn.Tanh(), torch.nn.Linear(5, OUTPUTS)
    ).to(dtype)


def batches(steps, per_rank=BATCH, dtype=torch.float64):
    """(inputs, targets) of all ranks together, for each step; the same everywhere."""
    generator = torch.Generator().manual_seed(5)
    count = per_rank * hvd.size()
    for _ in range(steps):
        yield (
            torch.randn(count, INPUTS, generator=generator, dtype=dtype),
            torch.randn(count, OUTPUTS, generator=generator, dtype=dtype),
        )


def own_part(batch, per_rank=BATCH):
    start = hvd.rank() * per_rank
    return tuple(values[start : start + per_rank] for values in batch)


def loss_of(model, batch):
    return torch.nn.functional.mse_loss(model(batch[0]), batch[1])


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def train_alone(make_optimizer, steps, seed=0, model=None):
    model = model or model_of(seed)
    optimizer = make_optimizer(model.parameters())
    for batch in batches(steps):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return model


def assert_trained_alike(model, alone, tolerance=1e-10):
    assert torch.allclose(weights(model), weights(alone), rtol=tolerance, atol=tolerance), (
        (weights(model) - weights(alone)).abs().max()
    )
    agree(hvd.allgather_object, weights(model).tolist())


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.01),
}


def check_training_equals_one_process():
    for name, make in OPTIMIZERS.items():
        for options in (
            {},
            {"groups": 2},
            {"gradient_predivide_factor": 2.0},
            {"groups": 3, "gradient_predivide_factor": 0.5},
        ):
            model = model_of(seed=hvd.rank())  # made equal by broadcast_parameters
            optimizer = hvd.DistributedOptimizer(
                make(model.parameters()), named_parameters=model.named_parameters(), **options
            )
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            assert type(optimizer).__name__ == type(make(model.parameters())).__name__
            assert isinstance(optimizer, torch.optim.Optimizer)
            for batch in batches(5):
                optimizer.zero_grad()
                loss_of(model, own_part(batch)).backward()
                optimizer.step()
            assert_trained_alike(model, train_alone(make, 5))


def check_accumulation_equals_one_process():
    """Two backward passes of half a batch each; the gradients add up, so the loss is halved."""
    for make in OPTIMIZERS.values():
        model = model_of()
        optimizer = hvd.DistributedOptimizer(
            make(model.parameters()), model.named_parameters(), backward_passes_per_step=2
        )
        for batch in batches(4):
            optimizer.zero_grad()
            part = own_part(batch)
            for half in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH)):
                (loss_of(model, (part[0][half], part[1][half])) / 2).backward()
            optimizer.step()
        assert_trained_alike(model, train_alone(make, 4))


def check_float32_and_compression():
    for compression, tolerance in ((hvd.Compression.none, 1e-5), (hvd.Compression.fp16, 1e-2)):
        make = OPTIMIZERS["sgd"]
        model = model_of(dtype=torch.float32)
        optimizer = hvd.DistributedOptimizer(
            make(model.parameters()), model.named_parameters(), compression=compression
        )
        for batch in batches(5, dtype=torch.float32):
            optimizer.zero_grad()
            loss_of(model, own_part(batch)).backward()
            optimizer.step()
        alone = model_of(dtype=torch.float32)
        plain = make(alone.parameters())
        for batch in batches(5, dtype=torch.float32):
            plain.zero_grad()
            loss_of(alone, batch).backward()
            plain.step()
        assert_trained_alike(model, alone, tolerance)


def check_without_names():
    model = model_of()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()))
    for batch in batches(3):
        optimizer.zero_grad()
        loss_of(model, own_part(batch)).backward()
        optimizer.step()
    assert_trained_alike(model, train_alone(OPTIMIZERS["sgd"], 3))


def check_state_of_wrapped_optimizer_is_kept():
    model = model_of()
    inner = OPTIMIZERS["momentum"](model.parameters())
    loss_of(model, next(batches(1))).backward()
    inner.step()
    inner.zero_grad()
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    assert optimizer.state_dict()["state"], "the momenta were lost"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.025
    later = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.1)
    loss_of(model, next(batches(1))).backward()
    optimizer.step()
    later.step()
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert len(optimizer.param_groups) == 1


def check_bad_arguments():
    model = model_of()
    sgd = OPTIMIZERS["sgd"](model.parameters())
    named = list(model.named_parameters())
    wrap = hvd.DistributedOptimizer
    raises(ValueError, wrap, sgd, [(name, p, 1) for name, p in named])
    raises(ValueError, wrap, sgd, [p for _, p in named])
    raises(ValueError, wrap, sgd, [("same", p) for _, p in named])
    raises(ValueError, wrap, sgd, named[:-1])
    raises(ValueError, wrap, sgd, named, backward_passes_per_step=0)
    raises(ValueError, wrap, sgd, named, gradient_predivide_factor=2.0, op=hvd.Sum)
    raises(ValueError, wrap, sgd, named, groups=0)
    raises(ValueError, wrap, sgd, named, groups="two")
    raises(ValueError, wrap, sgd, named, groups=[[named[0][1]], [named[0][1]]])
    raises(ValueError, wrap, sgd, named, groups=[[torch.ones(1)]])
    raises(ValueError, wrap, sgd, named, groups=2, num_groups=2)
    raises(ValueError, wrap, sgd, named, process_set=hvd.ProcessSet([0]))


def check_num_groups_and_listed_groups():
    model = model_of()
    parameters = list(model.parameters())
    for options in ({"num_groups": 2}, {"groups": [parameters[:2], parameters[3:5]]}, {"groups": 100}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            copied = copy.deepcopy(model)
            if "groups" in options and not isinstance(options["groups"], int):
                own = list(copied.parameters())
                options = {"groups": [own[:2], own[3:5]]}
            optimizer = hvd.DistributedOptimizer(
                OPTIMIZERS["sgd"](copied.parameters()), copied.named_parameters(), **options
            )
        for batch in batches(3):
            optimizer.zero_grad()
            loss_of(copied, own_part(batch)).backward()
            optimizer.step()
        assert_trained_alike(copied, train_alone(OPTIMIZERS["sgd"], 3, model=copy.deepcopy(model)))


def check_clipping_with_synchronize():
    model, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters())
    plain = OPTIMIZERS["sgd"](alone.parameters())
    for batch in batches(3):
        optimizer.zero_grad()
        loss_of(model, own_part(batch)).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            with optimizer.skip_synchronize():
                pass  # leaving it does not end the outer one
            optimizer.step()
        plain.zero_grad()
        loss_of(alone, batch).backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        plain.step()
    assert_trained_alike(model, alone)
    if hvd.size() > 1:
        loss_of(model, own_part(next(batches(1)))).backward()
        optimizer.synchronize()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step()
        words = "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize()"
        assert any(str(each.message).startswith(words) for each in caught)


def check_misuse_is_noticed():
    if hvd.size() == 1:
        return
    model = model_of()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters())
    batch = own_part(next(batches(1)))
    loss_of(model, batch).backward()
    assert "optimizer.zero_grad() was called after loss.backward()" in str(raises(AssertionError, optimizer.zero_grad))
    error = raises(AssertionError, lambda: loss_of(model, batch).backward())
    assert "Gradients were computed more than backward_passes_per_step times before call to step()" in str(error)
    raises(RuntimeError, optimizer.synchronize)  # something was added to a gradient that is being reduced
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(2)
    loss_of(model, batch).backward()
    loss_of(model, batch).backward()
    optimizer.step()


CHANGES = {
    "clip_grad_norm_": lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1),
    "clip_grad_value_": lambda model: torch.nn.utils.clip_grad_value_(model.parameters(), 0.1),
    "one gradient": lambda model: model[0].weight.grad.mul_(0.5),
    "detached": lambda model: model[0].weight.grad.detach().div_(8),
    "replaced": lambda model: setattr(model[0].weight, "grad", model[0].weight.grad * 2),
}


def shows(change):
    """Whether PyTorch sees the change: old releases clip values through .data, which leaves versions as they are."""
    model = model_of()
    loss_of(model, own_part(next(batches(1)))).backward()
    gradient = model[0].weight.grad
    before = gradient._version
    with torch.no_grad():
        change(model)
    return model[0].weight.grad is not gradient or gradient._version != before


def check_gradients_that_change_while_they_are_reduced():
    if hvd.size() == 1:
        return
    for options in ({}, {"groups": 2}, {"compression": hvd.Compression.fp16}, {"backward_passes_per_step": 2}):
        for what, change in CHANGES.items():
            if not shows(change):
                assert what == "clip_grad_value_"
                continue
            model = model_of()
            optimizer = hvd.DistributedOptimizer(
                OPTIMIZERS["sgd"](model.parameters()), model.named_parameters(), **options
            )
            batch = own_part(next(batches(1)))
            for _ in range(options.get("backward_passes_per_step", 1)):
                loss_of(model, batch).backward()
            with torch.no_grad():
                change(model)
            before = weights(model)
            error = raises(RuntimeError, optimizer.step)
            assert "optimizer.synchronize()" in str(error), (options, what, error)
            assert torch.equal(before, weights(model)), (options, what)
            optimizer.zero_grad()
            for _ in range(options.get("backward_passes_per_step", 1)):
                loss_of(model, batch).backward()
            optimizer.synchronize()
            with torch.no_grad():
                change(model)
            with optimizer.skip_synchronize():
                optimizer.step()
            agree(hvd.allgather_object, weights(model).tolist())
    model = model_of()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters())
    loss_of(model, own_part(next(batches(1)))).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with optimizer.skip_synchronize():
        raises(RuntimeError, optimizer.step)
    raises(RuntimeError, optimizer.zero_grad)
    raises(RuntimeError, optimizer.synchronize)


def check_gradients_that_only_seem_to_change():
    """Parameters whose gradients share memory and the count of writes to it; hooks of the program's own that write
    before a gradient is reduced; gradients that are kept, and those that are set to None."""

    class Halves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.ones(3))
            self.b = torch.nn.Parameter(torch.ones(2))
            self.bias = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return (torch.cat([self.a, self.b]) * x).sum() + self.bias

    def doubled(parameter):
        parameter.grad.mul_(2)

    for options in ({}, {"groups": 1}, {"compression": hvd.Compression.fp16}):
        model = Halves()
        model.bias.register_hook(lambda gradient: gradient * 2)
        if hasattr(model.a, "register_post_accumulate_grad_hook"):
            model.a.register_post_accumulate_grad_hook(doubled)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.5), model.named_parameters(), **options
        )
        for step in range(4):
            model(torch.arange(5.0) + hvd.rank()).backward()
            if step == 2:
                model.bias.grad = None
            optimizer.step()
            optimizer.zero_grad(set_to_none=step == 1)
        agree(hvd.allgather_object, [each.tolist() for each in model.parameters()])


def check_closure():
    model, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters())
    plain = OPTIMIZERS["sgd"](alone.parameters())
    for batch in batches(3):

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, own_part(batch))
            loss.backward()
            return loss

        def plain_closure():
            plain.zero_grad()
            loss = loss_of(alone, batch)
            loss.backward()
            return loss

        assert torch.is_tensor(optimizer.step(closure))
        plain.step(plain_closure)
    assert_trained_alike(model, alone)


def check_parameters_without_gradients():
    """A part that only some ranks use, one that no rank uses, one that is frozen."""

    class Parts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used = torch.nn.Linear(2, 1)
            self.sometimes = torch.nn.Linear(2, 1)
            self.never = torch.nn.Linear(2, 1)
            self.frozen = torch.nn.Linear(2, 1).requires_grad_(False)

        def forward(self, x, all_parts):
            y = self.used(x) + self.frozen(x)
            return y + self.sometimes(x) if all_parts else y

    for options in ({}, {"groups": 2}):
        torch.manual_seed(1)
        model = Parts()
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), **options
        )
        model(torch.ones(1, 2), hvd.rank() == 0).sum().backward()
        optimizer.step()
        after = dict(model.named_parameters())
        assert torch.allclose(before["used.weight"] - after["used.weight"], torch.ones(1, 2))
        assert torch.allclose(before["sometimes.weight"] - after["sometimes.weight"], torch.ones(1, 2) / hvd.size())
        for name in ("never.weight", "frozen.weight"):
            assert torch.equal(before[name], after[name])
            assert hvd.size() == 1 or after[name].grad is None
        optimizer.zero_grad()
        model(torch.ones(1, 2), True).sum().backward()
        optimizer.step()


def check_what_no_rank_has_used_is_left_alone():
    """Weight decay and momentum move a parameter that has a gradient of zeros, and none that has no gradient."""
    for options in ({}, {"groups": 2}, {"compression": hvd.Compression.fp16}, {"op": hvd.Sum}):
        torch.manual_seed(1)
        model = torch.nn.ModuleDict({name: torch.nn.Linear(2, 2) for name in ("body", "first", "second")})
        optimizer = hvd.DistributedOptimizer(
            torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5), model.named_parameters(), **options
        )
        # Which head each rank uses, by step: all the same one; none the second; different ones.
        for heads in (["first"], ["second"], ["first", "second"]):
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            optimizer.zero_grad(set_to_none=True)
            head = heads[hvd.rank() % len(heads)]
            model[head](model["body"](torch.ones(1, 2))).sum().backward()
            optimizer.step()
            used = heads[: hvd.size()]
            for name, parameter in model.named_parameters():
                moves = name.split(".")[0] in ["body", *used]
                assert torch.equal(parameter, before[name]) != moves, (options, heads, name)
                assert (parameter.grad is None) != moves, (options, heads, name)
            agree(hvd.allgather_object, weights(model).tolist())


def check_what_no_rank_has_used_when_added_or_unfrozen():
    """When backward() submits its last gradient, the rank has all gradients but those that have no hook yet."""
    model = torch.nn.ModuleDict({name: torch.nn.Linear(2, 2) for name in ("body", "frozen", "added")})
    model["frozen"].requires_grad_(False)
    optimizer = torch.optim.AdamW([*model["body"].parameters(), *model["frozen"].parameters()], weight_decay=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer)
    for change in (
        lambda: None,
        lambda: model["frozen"].requires_grad_(True),
        lambda: optimizer.add_param_group({"params": list(model["added"].parameters())}),
    ):
        change()
        optimizer.zero_grad(set_to_none=True)
        model["body"](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert all(p.grad is None for name in ("frozen", "added") for p in model[name].parameters())
        assert all(p.grad is not None for p in model["body"].parameters())


def check_schedulers_made_before_the_wrap():
    for op in (hvd.Average, hvd.Adasum) if hvd.size() in (1, 2, 4) else (hvd.Average,):
        model = model_of()
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), op=op)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                loss_of(model, own_part(next(batches(1)))).backward()
                optimizer.step()
                scheduler.step()
        assert abs(optimizer.param_groups[0]["lr"] - 0.025) < 1e-9


def check_copies():
    """Of an optimizer alone, with its model, and with a scheduler; by pickle and by copy."""
    batch = own_part(next(batches(1)))
    kinds = [{}, {"groups": 2, "compression": hvd.Compression.fp16}]
    if hvd.size() in (1, 2, 4):
        kinds.append({"op": hvd.Adasum})
    for options in kinds:
        for again in (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
            model = model_of()
            optimizer = hvd.DistributedOptimizer(
                torch.optim.Adam(model.parameters(), lr=0.1), model.named_parameters(), **options
            )
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            loss_of(model, batch).backward()
            if hvd.size() > 1 and "op" not in options:
                assert "between backward() and step()" in str(raises(RuntimeError, again, optimizer))
            optimizer.step()
            other, twin, its_scheduler = again((model, optimizer, scheduler))
            assert its_scheduler.optimizer is twin and type(twin).__name__ == "Adam"
            for each, its in ((model, optimizer), (other, twin)):
                its.zero_grad()
                loss_of(each, batch).backward()
                its.step()
            assert torch.equal(weights(model), weights(other))
            agree(hvd.allgather_object, weights(other).tolist())
            alone = again(optimizer)
            assert alone.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()


def check_state_keeps_its_dtypes():
    """torch's load_state_dict() casts it to the dtype of the parameter."""

    class WideWeights(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})

        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter]["wide"] = parameter.detach().float() + 2.0**-12
                self.state[parameter]["count"] = torch.tensor(2**25 + 1)

    for kind in (torch.optim.ASGD, WideWeights):
        parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        optimizer = kind([parameter])
        if hvd.rank() == 0:
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)

        def state(parameter=parameter, optimizer=optimizer):
            return {name: (value.dtype, value.tolist()) for name, value in optimizer.state[parameter].items()}

        agree(hvd.allgather_object, state())
        if kind is WideWeights:
            assert state() == {"wide": (torch.float32, [1 + 2.0**-12] * 3), "count": (torch.int64, 2**25 + 1)}, state()
        before = state()
        elastic = hvd.elastic.TorchState(optimizer=optimizer)
        elastic.restore()
        assert state() == before, (state(), before)


def check_state_keeps_the_memory_format():
    """Fused kernels compute wrong, in silence, where the formats of a parameter and its state differ."""

    def made(kind, **options):
        torch.manual_seed(4)
        model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        return model, kind(model.parameters(), lr=0.01, **options)

    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.ones(1, 3, 5, 5)).pow(2).sum().backward()
        optimizer.step()

    kinds = [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (torch.optim.Adagrad, {}),
    ]
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):  # of a release with fused kernels for CPUs
        kinds += [(torch.optim.Adam, {"fused": True}), (torch.optim.SGD, {"momentum": 0.9, "fused": True})]
    for kind, options in kinds:
        model, optimizer = made(kind, **options)
        if hvd.rank() == 0:
            step(model, optimizer)
            step(model, optimizer)
            if options.get("momentum"):  # of a checkpoint in another format
                for state in optimizer.state.values():
                    state["momentum_buffer"] = state["momentum_buffer"].contiguous()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if torch.is_tensor(value) and value.shape == parameter.shape:
                    assert value.stride() == parameter.stride(), (kind, options, name)
        step(model, optimizer)
        agree(hvd.allgather_object, weights(model).tolist())
        state = hvd.elastic.TorchState(model=model, optimizer=optimizer)
        state.save()
        step(model, optimizer)
        state.restore()
        state.sync()
        step(model, optimizer)
        agree(hvd.allgather_object, weights(model).tolist())


def check_sparse_gradients():
    for sparse_as_dense in (False, True):
        for op in (hvd.Average, hvd.Sum):
            torch.manual_seed(2)
            embedding = torch.nn.Embedding(10, 3, sparse=True)
            alone = torch.nn.Embedding(10, 3)
            alone.load_state_dict(embedding.state_dict())
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(embedding.parameters(), lr=0.5),
                embedding.named_parameters(),
                sparse_as_dense=sparse_as_dense,
                op=op,
            )
            plain = torch.optim.SGD(alone.parameters(), lr=0.5)
            words = torch.arange(2 * hvd.size()).remainder(10)
            embedding(words[2 * hvd.rank() : 2 * hvd.rank() + 2]).sum().backward()
            optimizer.step()
            factor = hvd.size() if op == hvd.Average else 1
            (alone(words).sum() / factor).backward()
            plain.step()
            assert torch.allclose(embedding.weight, alone.weight)


def check_process_set():
    if hvd.size() < 2:
        return
    pair = hvd.add_process_set([0, hvd.size() - 1] if hvd.size() > 2 else [1])
    model = model_of()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS["sgd"](model.parameters()), model.named_parameters(), process_set=pair
    )
    before = weights(model)
    twin = model_of()  # its gradients are not reduced while they are looked at
    loss_of(twin, own_part(next(batches(1)))).backward()
    own = torch.cat([p.grad.reshape(-1) for p in twin.parameters()])
    loss_of(model, own_part(next(batches(1)))).backward()
    if pair.included() and pair.size() > 1:
        optimizer.synchronize()
        reduced = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        assert torch.allclose(reduced, hvd.allreduce(own, process_set=pair, name="own"))
        with optimizer.skip_synchronize():
            optimizer.step()
    else:
        optimizer.step()
        assert torch.allclose(weights(model), before - 0.1 * own)
    assert hvd.remove_process_set(pair)


def check_broadcast_parameters():
    for root in {0, hvd.size() - 1}:
        expected = weights(model_of(seed=root))
        for form in ("state", "named", "list"):
            model = model_of(seed=hvd.rank())
            params = {
                "state": model.state_dict(),
                "named": list(model.named_parameters()),
                "list": list(model.parameters()),
            }[form]
            hvd.broadcast_parameters(params, root_rank=root)
            assert torch.equal(weights(model), expected)
    with_buffers = torch.nn.BatchNorm1d(3)
    with_buffers(torch.randn(5, 3) + hvd.rank())
    hvd.broadcast_parameters(with_buffers.state_dict(), 0)
    agree(hvd.allgather_object, with_buffers.running_mean.tolist())
    raises(ValueError, hvd.broadcast_parameters, 5, 0)
    raises(ValueError, hvd.broadcast_parameters, {"a": "text"}, 0)


def check_broadcast_optimizer_state():
    for name, make in OPTIMIZERS.items():
        model = model_of()
        optimizer = make(model.parameters())
        if hvd.rank() == 0:  # only the root has trained, and has another learning rate
            loss_of(model, next(batches(1))).backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"] = 0.123
        before = weights(model)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
        assert torch.equal(weights(model), before), "broadcasting moved the parameters"
        assert optimizer.param_groups[0]["lr"] == 0.123
        state = optimizer.state_dict()["state"]
        flat = {
            f"{index}.{key}": value.tolist() if torch.is_tensor(value) else value
            for index, values in state.items()
            for key, value in values.items()
        }
        agree(hvd.allgather_object, flat)
        if name == "adam":
            assert len(state) == 6
        optimizer.zero_grad()
        loss_of(model, next(batches(1))).backward()
        optimizer.step()
    lbfgs = torch.optim.LBFGS(model_of().parameters())
    raises(ValueError, hvd.broadcast_optimizer_state, lbfgs, 0)


def check_grad_scaler_style_use():
    """What mixed-precision scripts do: synchronize, unscale, step or skip the step."""
    model = model_of(dtype=torch.float32)
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters())
    for step, batch in enumerate(batches(4, dtype=torch.float32)):
        optimizer.zero_grad()
        (loss_of(model, own_part(batch)) * 8).backward()
        optimizer.synchronize()
        for p in model.parameters():
            p.grad.div_(8)
        if step % 2 == 0:
            with optimizer.skip_synchronize():
                optimizer.step()
    agree(hvd.allgather_object, weights(model).tolist())


def check_sparse_as_dense_gives_sparse_gradients_back():
    """SparseAdam takes nothing else; each rank has other rows, and one rank none."""
    for groups in (None, 1):
        torch.manual_seed(2)
        embedding = torch.nn.Embedding(10, 3, sparse=True)
        alone = copy.deepcopy(embedding)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SparseAdam(list(embedding.parameters()), lr=0.5),
            embedding.named_parameters(),
            sparse_as_dense=True,
            groups=groups,
            op=hvd.Sum,
        )
        plain = torch.optim.SparseAdam(list(alone.parameters()), lr=0.5)
        for step in range(3):
            for each in (optimizer, plain):
                each.zero_grad()
            words = [torch.tensor([rank, step, rank + 3]) for rank in range(hvd.size())]
            idle = hvd.size() - 1 if step == 1 and hvd.size() > 1 else None
            if hvd.rank() != idle:
                embedding(words[hvd.rank()]).sum().backward()
            optimizer.synchronize()
            assert embedding.weight.grad.is_sparse
            with optimizer.skip_synchronize():
                optimizer.step()
            alone(torch.cat([part for rank, part in enumerate(words) if rank != idle])).sum().backward()
            plain.step()
            assert torch.allclose(embedding.weight, alone.weight), (step, embedding.weight - alone.weight)


def check_broadcast_optimizer_state_leaves_zero_gradients():
    """As Horovod does; but the step with which it makes them would count, and move the parameters."""
    for make in OPTIMIZERS.values():
        model = model_of()
        model[0].bias.requires_grad_(False)
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
        before = weights(model)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert torch.equal(weights(model), before)
        for parameter in model.parameters():
            if parameter.requires_grad:
                assert torch.equal(parameter.grad, torch.zeros_like(parameter))
            else:
                assert parameter.grad is None
        loss_of(model, own_part(next(batches(1)))).backward()
        optimizer.step()
        agree(hvd.allgather_object, weights(model).tolist())
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    sparse = torch.optim.SparseAdam(list(embedding.parameters()))
    hvd.broadcast_optimizer_state(sparse, root_rank=0)
    embedding(torch.tensor([1, 2])).sum().backward()
    sparse.step()


def check_what_integrations_read():
    model = model_of()
    for op in (hvd.Average, hvd.Adasum):
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters(), op=op)
        assert "horovod" in type(optimizer).__module__ and type(optimizer).__name__ == "SGD"
        assert optimizer._parameter_names == {p: name for name, p in model.named_parameters()}
        assert not optimizer._handles
        reduced_here = hvd.size() > 1 and op == hvd.Average
        assert optimizer._requires_update == (set(model.parameters()) if reduced_here else set())
        if reduced_here:
            loss_of(model, own_part(next(batches(1)))).backward()
            assert set(optimizer._handles) == set(model.parameters())
            optimizer.step()
            assert not optimizer._handles
