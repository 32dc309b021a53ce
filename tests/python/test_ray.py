# SPDX-License-Identifier: Apache-2.0
"""horovod.ray on a real Ray cluster of two nodes, which are processes of this machine."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from support import engines, job
from support.processes import TIMEOUT_S, is_alive, wait_until

pytest.importorskip("ray", reason="Ray is not installed: scripts/ci.d/test-frameworks ray")
pytest.importorskip("numpy")
sys.path.insert(0, str(job.PACKAGES))

import ray

from horovod.ray import RayExecutor, placement, worker

NODES, CPUS = 2, 4


@pytest.fixture(scope="module")
def cluster():
    """Two nodes that this process is connected to."""
    with engines.ray_cluster(NODES, CPUS) as nodes:
        yield nodes


@contextlib.contextmanager
def started(*arguments, **options):
    settings = RayExecutor.create_settings(timeout_s=TIMEOUT_S, placement_group_timeout_s=TIMEOUT_S)
    executor = RayExecutor(settings, *arguments, **options)
    executor.start()
    try:
        yield executor
    finally:
        executor.shutdown()


@pytest.fixture(scope="module")
def executor(cluster):
    """Two ranks on each of two nodes."""
    with started(num_hosts=2, num_workers_per_host=2) as four:
        yield four


def place(tag=None):
    import hora.numpy as hvd

    hvd.init()
    total = float(hvd.allreduce([1.0], op=hvd.Sum)[0])
    numbers = hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()
    return (*numbers, total, tag)


def train_loop(config):
    from ray import train

    train.report({"found": place(config["tag"])})


def test_trainer_of_ray_train(cluster, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="ray[train] is not installed: scripts/ci.d/test-frameworks ray")
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")  # the newer Ray Train has no trainer for Horovod
    from ray.train import RunConfig, ScalingConfig
    from ray.train.horovod import HorovodTrainer

    trainer = HorovodTrainer(
        train_loop,
        train_loop_config={"tag": "t"},
        scaling_config=ScalingConfig(num_workers=2, trainer_resources={"CPU": 0}),
        run_config=RunConfig(storage_path=str(tmp_path)),
    )
    rank, *_, total, tag = trainer.fit().metrics["found"]
    assert (rank, total, tag) == (0, 2.0, "t")


def places(tag=None):
    return [(0, 0, 2, 0, 2, 4.0, tag), (1, 1, 2, 0, 2, 4.0, tag), (2, 0, 2, 1, 2, 4.0, tag), (3, 1, 2, 1, 2, 4.0, tag)]


def test_three_runs_on_the_same_actors(executor):
    for number in range(3):
        assert executor.run(place, args=(number,)) == places(number)
    assert executor.run(place, kwargs={"tag": "named"}) == places("named")
    assert ray.get(executor.run_remote(place)) == places()


def test_ranks_of_a_host_follow_one_another(executor):
    nodes = executor.run(lambda: ray.get_runtime_context().get_node_id())
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]


def test_a_function_that_leaves_joins_again_in_the_next_run(executor):
    def once():
        import hora.numpy as hvd

        found = place()
        hvd.shutdown()
        return found

    assert executor.run(once) == executor.run(once) == places()


def fail(rank, exception):
    import hora.numpy as hvd

    hvd.init()
    if hvd.rank() == rank:
        raise exception
    hvd.allreduce([1.0], name="never")


@pytest.mark.parametrize("exception", [ValueError("bad luck"), KeyError("k"), SystemExit(3)])
def test_a_rank_that_fails_is_reported_with_its_traceback_and_the_next_run_works(executor, caplog, exception):
    executor.run(place)
    expected = RuntimeError if isinstance(exception, SystemExit) else type(exception)
    with pytest.raises(expected) as failure:
        executor.run(fail, args=(2, exception))
    text = str(failure.value)
    assert "in fail" in text and "raise exception" in text, text
    assert failure.value.rank == 2 and failure.value.__cause__ is not None
    assert [record.message for record in caplog.records if record.message.startswith("rank 2 on ")], caplog.text
    assert executor.run(place) == places()


def test_a_rank_that_fails_before_it_joins(cluster):
    def too_early(rank):
        if int(os.environ["HOROVOD_RANK"]) == rank:
            raise LookupError("no data")
        return place()

    settings = RayExecutor.create_settings(timeout_s=20)
    executor = RayExecutor(settings, num_workers=2)
    executor.start()
    try:
        # The other rank waits in init() for one that will not come; this run does not wait for it.
        with pytest.raises(LookupError, match="no data"):
            executor.run(too_early, args=(1,))
        # Rank 0 has tried to join and rank 1 has not; they meet again all the same.
        assert [found[5] for found in executor.run(place)] == [2.0, 2.0]
    finally:
        executor.shutdown()


def test_a_killed_actor_is_reported(cluster, caplog):
    def die():
        import hora.numpy as hvd

        hvd.init()
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce([1.0], name="never")

    with started(num_workers=2) as executor:
        with pytest.raises(ray.exceptions.RayActorError):
            executor.run(die)
        assert "The process of rank 1 on " in caplog.text
        with pytest.raises(ray.exceptions.RayActorError):
            executor.run(place)


class Counter:
    def __init__(self, start, step=1):
        import hora.numpy as hvd

        hvd.init()
        self.value, self.step = start + hvd.rank(), step

    def add(self):
        self.value += self.step
        return self.value


def test_state_lives_in_the_actors(cluster):
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
    executor.start(Counter, executable_args=[10], executable_kwargs={"step": 5}, extra_env_vars={"COLOUR": 7})
    try:
        assert executor.execute(lambda counter: counter.add()) == [15, 16]
        assert executor.execute(lambda counter: counter.add()) == [20, 21]
        assert executor.execute_single(lambda counter: counter.value) == 20
        assert executor.run(lambda: os.environ["COLOUR"]) == ["7", "7"]
    finally:
        executor.shutdown()


def test_the_callers_placement_group_is_used_and_kept(cluster):
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote(num_cpus=1)
    def trial(group):
        with started(num_workers=2) as executor:
            mine = [ray.util.get_current_placement_group().id.hex()]
            return mine + executor.run(lambda: ray.util.get_current_placement_group().id.hex()) + executor.run(place)

    group = placement_group([{"CPU": 1}] * 3)
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    outer, *found = ray.get(trial.options(scheduling_strategy=strategy).remote(group), timeout=TIMEOUT_S)
    assert outer == group.id.hex() and found[:2] == [outer, outer]
    assert [each[5] for each in found[2:]] == [2.0, 2.0]
    remove_placement_group(group)


def test_no_room_says_what_is_there(cluster):
    settings = RayExecutor.create_settings(placement_group_timeout_s=1)
    with pytest.raises(TimeoutError, match=r"no place for 3 x 1 CPU on different hosts within 1 s .*: 4 CPU; 4 CPU\. "):
        RayExecutor(settings, num_hosts=3).start()
    with pytest.raises(TimeoutError, match="1 CPU, 1 GPU"):
        RayExecutor(settings, num_workers=1, use_gpu=True).start()


def test_nothing_is_left_after_shutdown(cluster):
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
    executor.start()
    pids = [*executor.run(os.getpid), executor._meeting._process.pid]
    assert len(pids) == 3 and all(map(is_alive, pids))
    executor.shutdown()
    wait_until(lambda: not any(map(is_alive, pids)), "the actors and the server end")
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        executor.run(place)
    executor.start()  # and once more
    assert len(executor.run(os.getpid)) == 2
    executor.shutdown()


DRIVER = """
import os, sys, time, ray
from horovod.ray import RayExecutor
ray.init(address=sys.argv[1], log_to_driver=False)
executor = RayExecutor(RayExecutor.create_settings(timeout_s=300, placement_group_timeout_s=300), num_workers=2)
executor.start()
print(*executor.run(os.getpid), executor._meeting._process.pid, flush=True)
executor.run(lambda: time.sleep(600))
"""


def test_nothing_is_left_of_a_killed_driver(cluster):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, cluster.address], stdout=subprocess.PIPE, text=True, env=job.environment()
    )
    try:
        pids = [int(word) for word in driver.stdout.readline().split()]
        assert len(pids) == 3 and all(map(is_alive, pids))
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()
    wait_until(lambda: not any(map(is_alive, pids)), "the actors and the server end")


def test_example_of_the_documentation(cluster):
    """Horovod's documentation describes it: a function on all ranks, and a model that each actor keeps."""
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd

    def simple_fn():
        hvd.init()
        return hvd.rank()

    class MyModel:
        def __init__(self, learning_rate):
            hvd.init()
            torch.manual_seed(hvd.rank())
            self.model = torch.nn.Linear(2, 1)
            hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
            optimizer = torch.optim.SGD(self.model.parameters(), lr=learning_rate)
            self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters())

        def get_weights(self):
            return {name: value.tolist() for name, value in self.model.state_dict().items()}

        def train(self):
            self.optimizer.zero_grad()
            loss = self.model(torch.full((4, 2), float(hvd.rank() + 1))).pow(2).mean()
            loss.backward()
            self.optimizer.step()
            return loss.item()

    settings = RayExecutor.create_settings(timeout_s=30)
    executor = RayExecutor(settings, num_workers=2, cpus_per_worker=1, use_gpu=False)
    executor.start(executable_cls=MyModel, executable_args=[0.01])
    result = executor.run(simple_fn)
    assert len(set(result)) == 2
    for _ in range(5):
        executor.execute(lambda worker: worker.train())
    weights = executor.execute(lambda worker: worker.get_weights())
    executor.shutdown()
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "give one of the two"),
        ({"num_workers": 2, "num_hosts": 2}, "give one of the two"),
        ({"num_workers": 0}, "num_workers=0: expected a number"),
        ({"num_hosts": 2, "num_workers_per_host": True}, "num_workers_per_host=True"),
        ({"num_workers": 2, "gpus_per_worker": 1}, "needs use_gpu=True"),
    ],
)
def test_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        RayExecutor(None, **arguments)


def test_settings():
    settings = RayExecutor.create_settings(7, ssh_identity_file="key", ssh_str="text", nics={"eth1"})
    assert (settings.timeout_s, settings.placement_group_timeout_s, settings.nics) == (7, 100, {"eth1"})


def test_what_is_reserved():
    def reserved(*arguments):
        request = placement.Request(*arguments)
        return request.num_workers, request.bundles(), request.strategy()

    assert reserved(3, None, 1, 2, False, None) == (3, [{"CPU": 2}] * 3, "PACK")
    assert reserved(None, 2, 4, 1, True, None) == (8, [{"CPU": 4, "GPU": 4}] * 2, "STRICT_SPREAD")
    assert reserved(2, None, 1, 0, True, 2) == (2, [{"GPU": 2}] * 2, "PACK")


def test_gpus_of_a_host_are_seen_by_all_its_ranks(monkeypatch):
    from hora import rendezvous

    executor = RayExecutor(None, num_workers=3, use_gpu=True, gpus_per_worker=2)
    executor._places = rendezvous.assign_ranks(["a", "a", "b"])
    given = [["0", "1"], ["2", "3"], ["0", "1"]]
    monkeypatch.setattr(executor, "workers", [FakeWorker(gpus) for gpus in given])
    monkeypatch.setattr(ray, "get", list)
    # By local rank first: device 1 is the first one of local rank 1.
    assert executor._visible_gpus() == {
        "a": {"CUDA_VISIBLE_DEVICES": "0,2,1,3"},
        "b": {"CUDA_VISIBLE_DEVICES": "0,1"},
    }


class FakeWorker:
    def __init__(self, gpus):
        self.get_gpu_ids = self
        self.gpus = gpus

    def remote(self):
        return self.gpus


def test_executor_without_ray(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(RuntimeError, match=r"call ray.init\(\) first"):
        RayExecutor(None, num_workers=1).start()


def test_worker_interface():
    methods = {"node_id", "hostname", "get_gpu_ids", "update_env_vars", "env_vars", "start_executable", "execute"}
    assert methods <= set(dir(worker.BaseHorovodWorker))
