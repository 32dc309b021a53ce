# SPDX-License-Identifier: Apache-2.0
"""Loading batches."""

from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader
