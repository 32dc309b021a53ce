# SPDX-License-Identifier: Apache-2.0
"""Ray and Spark for tests: clusters whose nodes and executors are processes of this machine."""

import contextlib
import os
import sys

from support import job


@contextlib.contextmanager
def variables(**more):
    """This process's environment as a test job has it."""
    before = dict(os.environ)
    os.environ.update(job.environment(**more))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def spark_variables():
    import pyspark

    return {
        "SPARK_HOME": os.path.dirname(pyspark.__file__),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@contextlib.contextmanager
def spark_context(executors, cores, **settings):
    """A SparkContext with that many executors, each with that many slots. settings: names with _ for dots."""
    from pyspark.sql import SparkSession

    with variables(**spark_variables()):
        builder = SparkSession.builder.master(f"local-cluster[{executors},{cores},1024]")
        builder = builder.config("spark.ui.enabled", "false").config("spark.executor.memory", "512m")
        for name, value in settings.items():
            builder = builder.config(name.replace("_", "."), value)
        session = builder.getOrCreate()
        try:
            yield session.sparkContext
        finally:
            session.stop()


@contextlib.contextmanager
def ray_cluster(nodes, cpus):
    """A Ray cluster that this process is connected to."""
    import ray
    from ray.cluster_utils import Cluster

    with variables(RAY_ENABLE_UV_RUN_RUNTIME_ENV=0):
        memory = {"num_cpus": cpus, "object_store_memory": 80 << 20}
        # Ray's workers are nice by default, and would wait for everything else that a test machine does.
        head = {**memory, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(nodes - 1):
                cluster.add_node(**memory)
            ray.init(address=cluster.address)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
