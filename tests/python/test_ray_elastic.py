# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on a real Ray cluster of two nodes, which are processes of this machine."""

import concurrent.futures
import os
import subprocess
import sys

import pytest

from support import engines, job
from support.elastic_training import fail, kill_rank_1, once, place, place_on_machine, train
from support.processes import TIMEOUT_S, is_alive, marked, wait_until

pytest.importorskip("ray", reason="Ray is not installed: scripts/ci.d/test-frameworks ray")
sys.path.insert(0, str(job.PACKAGES))

import ray

from horovod.ray import ElasticRayExecutor, RayExecutor, elastic

CPUS = 2


@pytest.fixture(scope="module")
def cluster():
    """Two nodes that this process is connected to."""
    with engines.ray_cluster(2, CPUS) as nodes:
        yield nodes


def executor(least, most=None, env_vars=None, **settings):
    settings = ElasticRayExecutor.create_settings(least, most, elastic_timeout=TIMEOUT_S, **settings)
    chosen = ElasticRayExecutor(settings, cpus_per_slot=1, env_vars=env_vars)
    chosen.start()
    return chosen


def test_results_by_rank(cluster):
    for count in (3, 2):
        found = executor(count, count).run(place)
        assert found == [(rank, count, list(range(count))) for rank in range(count)]


def test_all_room_is_used(cluster):
    assert [found[:2] for found in executor(4).run(place)] == [(rank, 4) for rank in range(4)]


def test_ranks_are_actors(cluster):
    def where():
        context = ray.get_runtime_context()
        return context.get_actor_id(), context.get_node_id(), ray.get(ray.put(os.environ["COLOUR"]))

    found = executor(4, env_vars={"COLOUR": "red"}).run(where)
    assert len({actor for actor, _, _ in found}) == 4 and len({node for _, node, _ in found}) == 2
    assert {colour for _, _, colour in found} == {"red"}


def test_local_places_are_those_on_the_machine(cluster):
    found = executor(2, 2).run(place_on_machine)
    assert found == [(rank, 2, 0, 1, str(rank)) for rank in range(2)]


def test_actors_with_gpus_count_from_0():
    assert not elastic._Actors(elastic.Resources(1, True, None)).shares_devices
    assert elastic._Actors(elastic.Resources(1, False, None)).shares_devices


def test_a_killed_actor_is_replaced(cluster, tmp_path):
    found = executor(2, 3).run(lambda: train(str(tmp_path), [3, 2, 3], kill_rank_1))
    assert found == [(rank, [3, 2, 3]) for rank in range(3)]


def test_nodes_that_come_and_go(cluster, tmp_path):
    more = {"num_cpus": CPUS, "object_store_memory": 80 << 20}
    grown, shrunk = tmp_path / "grown", tmp_path / "shrunk"

    def report_size(folder):
        import hora

        if hora.rank() == 0:
            (grown if hora.size() == 6 else shrunk).touch()

    def function():
        once(str(tmp_path), "begun")
        # The second epoch begins with six ranks, and lasts until there are four again.
        return train(str(tmp_path), [6, 4], report_size)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(executor(4).run, function)
        wait_until((tmp_path / "begun").exists, "the job runs")
        extra = cluster.add_node(**more)
        wait_until(grown.exists, "the job uses the new node")
        cluster.remove_node(extra)
        found = running.result(TIMEOUT_S)
    assert found == [(rank, [6, 4]) for rank in range(4)]


def test_a_rank_that_raises_is_reported_with_its_traceback(cluster):
    with pytest.raises(RuntimeError, match=r"(?s)rank 1 failed:.*in fail.*ValueError: bad luck"):
        executor(2, 2).run(lambda: fail(1))
    assert len(executor(2, 2).run(place)) == 2


def test_reset_limit(cluster, tmp_path):
    chosen = RayExecutor(None, num_workers=2, min_workers=1, max_workers=2, reset_limit=0)
    chosen.start()
    with pytest.raises(RuntimeError, match="reset-limit"):
        chosen.run(train, (str(tmp_path), [2, 1], kill_rank_1))


def test_too_little_room(cluster):
    settings = ElasticRayExecutor.create_settings(5, elastic_timeout=3)
    chosen = ElasticRayExecutor(settings)
    chosen.start()
    with pytest.raises(TimeoutError, match=r"of 5 processes .* within 3 s: Its hosts have, in all: 2 CPU; 2 CPU"):
        chosen.run(place)


def test_callbacks_see_what_rank_0_logs(cluster):
    def speak():
        import hora
        from horovod.ray import ray_logger

        hora.init()
        for step in range(3):
            ray_logger.log({"rank": hora.rank(), "step": step})
        hora.barrier()

    seen = []
    executor(2, 2).run(speak, callbacks=[seen.append])
    assert seen == [{"rank": 0, "step": step} for step in range(3)]


class Model:
    def __init__(self, start, step):
        import hora

        hora.init()
        self.value = start + step * hora.rank()


def test_elastic_ray_executor_by_arguments(cluster, tmp_path):
    chosen = RayExecutor(RayExecutor.create_settings(), min_workers=2, max_workers=3, elastic_timeout=TIMEOUT_S)
    chosen.start(Model, [10], {"step": 5}, extra_env_vars={"COLOUR": 7})
    assert chosen.run(place)[0][0] == 0
    assert chosen.execute(lambda model: model.value)[:2] == [10, 15]
    assert chosen.run(lambda tag: (os.environ["COLOUR"], tag), kwargs={"tag": 1})[0] == ("7", 1)
    found = chosen.run(train, (str(tmp_path), [3, 2, 3], kill_rank_1))
    assert found == [(rank, [3, 2, 3]) for rank in range(3)]
    for call in (lambda: chosen.run_remote(place), lambda: chosen.execute_single(place)):
        with pytest.raises(ValueError, match="needs ranks that stay"):
            call()
    chosen.shutdown()
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        chosen.run(place)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_hosts": 2, "min_workers": 1}, "num_hosts belongs to a fixed number"),
        ({"num_workers": 1, "min_workers": 2}, "expected min_np <= np <= max_np"),
        ({"min_workers": 2, "gpus_per_worker": 1}, "need use_gpu=True"),
    ],
)
def test_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        RayExecutor(None, **arguments)


def test_it_needs_ray(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(RuntimeError, match=r"call ray.init\(\) first"):
        RayExecutor(None, min_workers=1).start()


DRIVER = """
import sys, ray
from horovod.ray import ElasticRayExecutor
from support.elastic_training import sleep_long
ray.init(address=sys.argv[1], log_to_driver=False)
settings = ElasticRayExecutor.create_settings(2, 2)
executor = ElasticRayExecutor(settings, env_vars={"HORA_TEST_MARK": sys.argv[2]})
executor.start()
folder = sys.argv[2]
executor.run(lambda: sleep_long(folder))
"""


def test_nothing_is_left_of_a_killed_driver(cluster, tmp_path):
    command = [sys.executable, "-c", DRIVER, cluster.address, str(tmp_path)]
    driver = subprocess.Popen(command, env=job.environment(HORA_TEST_MARK=tmp_path))
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, "both ranks run")
        ranks = [int(path.stem) for path in tmp_path.glob("*.pid")]
        assert all(map(is_alive, ranks)) and len(marked(tmp_path)) >= 3
    finally:
        driver.kill()
        driver.wait()
    wait_until(lambda: not marked(tmp_path) and not any(map(is_alive, ranks)), "nothing is left")
