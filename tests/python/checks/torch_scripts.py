# SPDX-License-Identifier: Apache-2.0
"""What training scripts do beyond the plain loop: going on from a checkpoint, closures that synchronize,
gradient scaling, layers that are unfrozen or added, sparse gradients that some ranks lack, two
optimizers that feed each other or follow one another, data in worker processes."""

import copy
import gc
import time
import weakref

import torch

import horovod.torch as hvd
from support.expect import agree, raises


def weights(*models):
    return torch.cat([p.detach().reshape(-1) for model in models for p in model.parameters()])


def agreed(*models):
    agree(hvd.allgather_object, weights(*models).tolist())


def two_layers():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)).double()


def own_rows(step=0):
    generator = torch.Generator().manual_seed(10 * step + hvd.rank())
    return torch.randn(4, 3, generator=generator, dtype=torch.float64)


def all_rows(step=0):
    return hvd.allgather(own_rows(step))


def take_step(optimizer, model, rows):
    optimizer.zero_grad()
    model(rows).pow(2).mean().backward()
    optimizer.step()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def check_going_on_from_the_checkpoint_of_rank_0():
    """Only rank 0 has an optimizer state; the learning rate and the momenta become those of all."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size(), momentum=0.9)
    if hvd.rank() == 0:
        take_step(optimizer, model, torch.ones(2, 3, dtype=torch.float64))
        optimizer.param_groups[0]["lr"] = 0.0125
    epoch = hvd.broadcast(torch.tensor(7 if hvd.rank() == 0 else 0), root_rank=0, name="resume")
    assert epoch.item() == 7
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=2
    )
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.0125
    assert len(optimizer.state_dict()["state"]) == 4
    for step in range(2):
        optimizer.zero_grad()
        for part in range(2):
            (model(own_rows(2 * step + part)).pow(2).mean() / 2).backward()
        optimizer.step()
    agreed(model)


def check_a_closure_that_synchronizes():
    """As trainers do that clip in between: every gradient is reduced once."""
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), named_parameters=[("weight", weight)], op=hvd.Sum
    )

    def closure(synchronize=True):
        optimizer.zero_grad()
        loss = weight.sum()
        loss.backward()
        if synchronize:
            optimizer.synchronize()
        return loss

    with optimizer.skip_synchronize():
        optimizer.step(closure)
    assert weight.tolist() == [-1.0 * hvd.size()] * 3, weight
    optimizer.step(closure)
    assert weight.tolist() == [-2.0 * hvd.size()] * 3, weight
    optimizer.step(lambda: closure(synchronize=False))
    assert weight.tolist() == [-3.0 * hvd.size()] * 3, weight


def check_gradient_scaler():
    """A step that one rank finds infinite is skipped by all."""
    if not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"):
        return  # of old releases it works on GPUs only
    model = two_layers().float()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(4):
        before = weights(model).clone()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(own_rows(step).float()).pow(2).mean()
        if step == 2 and hvd.rank() == hvd.size() - 1:
            loss = loss * float("inf")
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, weights(model)) == (step == 2), step
    assert scaler.get_scale() == 4.0
    agreed(model)
    if hvd.size() == 1:
        return
    # Without synchronize() each rank would look for infinities in its own gradients.
    optimizer.zero_grad()
    scaler.scale(model(own_rows(0).float()).sum()).backward()
    assert "optimizer.synchronize()" in str(raises(RuntimeError, scaler.step, optimizer))
    scaler.unscale_(optimizer)
    assert "optimizer.synchronize()" in str(raises(RuntimeError, scaler.step, optimizer))
    optimizer.synchronize()


def check_layers_that_are_unfrozen():
    model, alone = two_layers(), two_layers()
    optimizers = []
    for each in (model, alone):
        for parameter in each[0].parameters():
            parameter.requires_grad = False
        optimizers.append(sgd(each.parameters()))
    optimizer = hvd.DistributedOptimizer(optimizers[0], named_parameters=model.named_parameters())
    for step in range(4):
        if step == 1:
            for each in (model, alone):
                for parameter in each[0].parameters():
                    parameter.requires_grad = True
        take_step(optimizer, model, own_rows(step))
        take_step(optimizers[1], alone, all_rows(step))
    assert torch.allclose(weights(model), weights(alone))
    agreed(model)


def check_layers_that_are_frozen():
    """What needs no gradient any more is not changed, as by a plain optimizer."""
    for groups in (None, 1, "layers"):
        model, alone = two_layers(), two_layers()
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, weight_decay=0.5) for each in (model, alone)]
        optimizer = hvd.DistributedOptimizer(
            optimizers[0],
            named_parameters=model.named_parameters(),
            groups=[list(layer.parameters()) for layer in model if list(layer.parameters())]
            if groups == "layers"
            else groups,
        )
        for step in range(3):
            if step == 1:
                optimizer.zero_grad(set_to_none=True)
                optimizers[1].zero_grad(set_to_none=True)
                for each in (model, alone):
                    for parameter in each[0].parameters():
                        parameter.requires_grad = False
                before = weights(model[0])
            take_step(optimizer, model, own_rows(step))
            take_step(optimizers[1], alone, all_rows(step))
        assert torch.equal(before, weights(model[0])), groups
        assert torch.allclose(weights(model), weights(alone)), groups
        agreed(model)


def check_layers_that_are_added():
    for named in (True, False):
        model, alone = two_layers(), two_layers()
        plain = sgd(alone.parameters())
        optimizer = hvd.DistributedOptimizer(
            sgd(model[1].parameters()), named_parameters=model.named_parameters() if named else None
        )
        optimizer.add_param_group({"params": list(model[0].parameters())})
        for step in range(3):
            take_step(optimizer, model, own_rows(step))
            take_step(plain, alone, all_rows(step))
        assert torch.allclose(weights(model), weights(alone))
        agreed(model)


def check_step_hooks_run_once():
    model, calls = two_layers(), []
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    if not hasattr(optimizer, "register_step_post_hook"):
        return  # old releases have none
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    for _ in range(2):
        take_step(optimizer, model, own_rows())
        optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["after"] * 2, calls


def check_sparse_gradients_that_some_ranks_lack():
    """In later steps; with SparseAdam also in the first."""
    for make, first in ((sgd, 1), (lambda p: torch.optim.SparseAdam(list(p), lr=0.1), 0)):
        torch.manual_seed(4)
        tables = torch.nn.ModuleList(torch.nn.Embedding(5, 2, sparse=True) for _ in range(2))
        optimizer = hvd.DistributedOptimizer(make(tables.parameters()), tables.named_parameters())
        for step in range(3):
            before = tables[1].weight.detach().clone()
            optimizer.zero_grad()
            loss = tables[0](torch.tensor([1, hvd.rank()])).sum()
            if step < first or hvd.rank() == 0:
                loss = loss + tables[1](torch.tensor([2, 3])).sum()
            loss.backward()
            optimizer.step()
            changed = (before != tables[1].weight.detach()).any(dim=1).tolist()
            assert changed == [False, False, True, True, False], changed
        agreed(tables)


def check_two_optimizers_that_feed_each_other():
    torch.manual_seed(5)
    generator, critic = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), lr=0.01),
            [(f"{name}.{key}", value) for key, value in model.named_parameters()],
        )
        for name, model in (("generator", generator), ("critic", critic))
    ]
    for step in range(3):
        rows = own_rows(step).float()
        optimizers[1].zero_grad()
        critic(generator(rows).detach()).mean().backward()
        optimizers[1].step()
        critic.requires_grad_(False)
        optimizers[0].zero_grad()
        critic(generator(rows)).mean().backward()
        optimizers[0].step()
        critic.requires_grad_(True)
    agreed(generator, critic)


def check_data_from_worker_processes():
    """Forked in the middle of a job; they end without disturbing it."""
    data = torch.utils.data.TensorDataset(torch.arange(16.0).reshape(16, 1))
    sampler = torch.utils.data.distributed.DistributedSampler(
        data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=True
    )
    loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler, num_workers=1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        rows = torch.cat([batch for (batch,) in loader])
        assert set(hvd.allgather(rows).flatten().tolist()) == set(range(16))


def check_an_optimizer_for_each_stage_of_the_training():
    """The last one reduces the gradients; an earlier one says so, if asked to step again."""
    model, alone = two_layers(), two_layers()
    for groups, frozen in ((None, True), (None, False), (1, False)):
        for each in (model, alone):
            each[0].requires_grad_(not frozen)
        first = optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), groups=groups)
        for step in range(2):
            take_step(optimizer, model, own_rows(step))
            take_step(sgd(alone.parameters()), alone, all_rows(step))
    assert torch.allclose(weights(model), weights(alone)), (weights(model), weights(alone))
    hvd.DistributedOptimizer(sgd(model[1].parameters()))
    if hvd.size() > 1:
        error = raises(ValueError, first.step)
        assert "taken over 2 of this one's parameters, 1.weight among them" in str(error), error


def check_an_optimizer_that_is_gone_keeps_nothing():
    """Not even until the next garbage collection, which knows nothing of the memory of tensors: a search for
    good settings trains many models one after the other."""
    model = two_layers()
    plain = weakref.ref(sgd(model.parameters()))
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    take_step(optimizer, model, own_rows())
    reduction = weakref.ref(optimizer._reduction)
    del optimizer
    if plain() is not None:  # this release's optimizers wait for the collection themselves
        gc.collect()
    assert reduction() is None
    model(own_rows()).mean().backward()  # starts nothing


def check_an_optimizer_that_is_gone_between_backward_and_step():
    """Its names can be used at once, with and without a step before, although one rank comes late to what it left in
    flight."""
    torch.manual_seed(5)
    for options in ({}, {"groups": 1}):
        for steps in (0, 1):
            models = [torch.nn.Linear(3, 2, bias=False).double() for _ in range(2)]
            for model in models:
                optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **options)
                for _ in range(steps):
                    take_step(optimizer, model, own_rows())
                alone = copy.deepcopy(model)
                optimizer.zero_grad()
                if hvd.rank() == hvd.size() - 1:
                    time.sleep(0.2)
                model(own_rows()).pow(2).mean().backward()
            optimizer.synchronize()
            alone.zero_grad()
            alone(all_rows()).pow(2).mean().backward()
            assert torch.allclose(model.weight.grad, alone.weight.grad), (model.weight.grad, alone.weight.grad)


def check_optimizers_of_two_process_sets_whose_parameters_have_the_same_names():
    """Names are those of a set: a rank of both reduces gradients of one name in each at the same time."""
    if hvd.size() < 3:
        return
    models = [torch.nn.Linear(3, 3, bias=False).double() for _ in range(2)]
    subset = hvd.add_process_set(sorted({0, hvd.size() - 1}))
    optimizers = [
        hvd.DistributedOptimizer(sgd(m.parameters()), m.named_parameters(), process_set=process_set)
        for m, process_set in zip(models, (hvd.global_process_set, subset))
    ]
    models[1](models[0](own_rows())).mean().backward()
    for optimizer in optimizers:
        optimizer.step()
    hvd.remove_process_set(subset)


def check_two_optimizers_whose_parameters_have_the_same_names():
    for options in ({}, {"groups": 1}):
        models = [torch.nn.Linear(3, columns, bias=False).double() for columns in (3, 1)]
        optimizers = [hvd.DistributedOptimizer(sgd(m.parameters()), m.named_parameters(), **options) for m in models]
        loss = models[1](models[0](own_rows())).mean()
        if hvd.size() > 1:
            error = raises(ValueError, loss.backward)
            assert "another DistributedOptimizer is reducing a gradient named 'weight'" in str(error), error
            optimizers[1].synchronize()
