# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator of Horovod, which is not here."""

raise ImportError(
    "horovod.spark.keras (KerasEstimator) is not part of Hora: the library that reads its data does not work with "
    "current Spark. Train in a function of your own: horovod.spark.run(train, num_proc=N)"
)
