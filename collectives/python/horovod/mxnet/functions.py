# SPDX-License-Identifier: Apache-2.0
"""Python objects among the ranks."""

from hora import objects


def broadcast_object(obj, root_rank=0, name=None):
    """The root's object on every rank."""
    return objects.broadcast_object(obj, root_rank, name)


def allgather_object(obj, name=None):
    """The objects of all ranks, as a list."""
    return objects.allgather_object(obj, name)
