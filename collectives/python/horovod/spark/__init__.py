# SPDX-License-Identifier: Apache-2.0
"""Functions on ranks that are tasks of Spark."""

from hora.spark_elastic import run_elastic
from hora.spark_job import run
