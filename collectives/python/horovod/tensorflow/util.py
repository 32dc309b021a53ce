# SPDX-License-Identifier: Apache-2.0
"""Helpers that integrations import."""

from __future__ import annotations

import tensorflow as tf

from horovod.common.util import _cache  # noqa: F401

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _executing_eagerly() -> bool:
    return tf.executing_eagerly()


def _make_subgraph(f: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(f)


def vars_to_refs(vars: Any) -> Any:
    """References to variables, which can be keys of a dictionary."""
    if isinstance(vars, list):
        return tuple(vars_to_refs(each) for each in vars)
    return vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables of vars_to_refs()."""
    if isinstance(refs, tuple):
        return [refs_to_vars(each) for each in refs]
    return refs.deref()
