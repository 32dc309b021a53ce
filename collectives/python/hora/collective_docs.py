# SPDX-License-Identifier: Apache-2.0
"""What the docstrings of the collectives have in common, written once for all frameworks.

A framework's module gives each function its signature and a summary. @documented adds the rules of the operation,
the meaning of the arguments, how long the call blocks, and what it raises. Pure: docs/reference/python is made
with it, too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

RULES = {
    "allreduce": """\
Shape and dtype are the same on all ranks of process_set; the result has them, too. The order is prescale,
reduce, postscale. An average divides by the size of the set; integers truncate toward zero.""",
    "allgather": """\
There is at least one dimension. The dtype and all extents but the first are the same on all ranks of
process_set. The result holds the rows of all ranks, in the order of the set.""",
    "broadcast": """\
Shape and dtype are the same on all ranks of process_set; the result has them, too. Only the values of the root
are read.""",
    "alltoall": """\
There is at least one dimension. The dtype and all extents but the first are the same on all ranks of
process_set. The rows come in the order of the ranks that sent them.""",
    "reducescatter": """\
There is at least one dimension. Shape and dtype are the same on all ranks of process_set. Rank i of the set
gets part i of the rows; where they do not divide evenly, the first ranks get one more each.""",
}

ARGUMENTS = {
    "name": """\
how the ranks match the operation. Default: a number that counts the operations of this
kind in the set, so all ranks have to call in the same order""",
    "average": "the older spelling: True for op=Average, False for op=Sum",
    "op": "the reduction. Default: Average",
    "prescale_factor": "multiplies the input",
    "postscale_factor": "multiplies the result",
    "compression": "Compression.none, .fp16 or .bf16: wider floats travel as that type",
    "root_rank": "a rank of the whole job, also where process_set is smaller",
    "splits": """\
how many rows go to each rank of the set, in sum at most all rows. Default: equal parts.
With splits the result is a pair: the rows, and a vector of int32 with how many came from each rank""",
    "priority": "larger runs first among the operations that are ready",
    "process_set": "the ranks that take part. Default: all",
    "ignore_name_scope": "in a graph, take only the last part of the name",
    "device_dense": "the tf.device that reduces dense tensors. Default: where they are",
    "device_sparse": "the tf.device that reduces tf.IndexedSlices. Default: where they are",
}

GROUP = """\
The operations of a group run together or not at all. All ranks give the same number of tensors, in
the same order."""

WAITS = """\
Blocks until all ranks of the set have called it. HOROVOD_STALL_SHUTDOWN_TIME_SECONDS sets a time limit; without
it there is none, but a warning after 60 seconds names the missing ranks. Ctrl-C interrupts the wait."""

STARTS = """\
Does not block. Returns an integer handle for poll() and synchronize(). Leave the input as it is until
synchronize() has returned the result."""

ERRORS = """\
TensorMismatchError: the ranks disagree; all of them get the same text
UnsupportedError: no backend of this job can run the operation
HorovodInternalError: a rank was lost or has left the job
NotInitializedError: before init() or after shutdown()
ValueError, TypeError: a mistake of this rank; nothing was sent"""


_ROWS = {name: f"    {name}: {meaning}\n".replace("\n", "\n        ")[:-8] for name, meaning in ARGUMENTS.items()}
_RAISES = ":\n    " + ERRORS.replace("\n", "\n    ")


def kind_of(name: str) -> str:
    """The operation that a function is a form of: allreduce for grouped_allreduce_async_, say."""
    plain = name.rstrip("_")
    return plain[8 if plain.startswith("grouped_") else 0 : -6 if plain.endswith("_async") else None]


def full_text(name: str, arguments: Sequence[str], summary: str) -> str:
    """The docstring of the collective `name` with these arguments; its first paragraph is `summary`."""
    starts = "_async" in name
    rows = "".join([_ROWS[each] for each in arguments if each in _ROWS])
    group = f"\n\n{GROUP}" if name.startswith("grouped_") else ""
    where = ", here or in synchronize()" if starts else ""
    time = STARTS if starts else WAITS
    return f"{summary}\n\n{RULES[kind_of(name)]}{group}\n\n{time}\n\nArgs:\n{rows}\nRaises{where}{_RAISES}"


def documented(function: Function) -> Function:
    """Decorator: completes the docstring of a collective. It returns the function itself."""
    if function.__doc__:  # python -OO leaves it out
        code = function.__code__
        summary = "\n".join(map(str.strip, function.__doc__.splitlines()))
        function.__doc__ = full_text(function.__name__, code.co_varnames[: code.co_argcount], summary)
    return function
