# SPDX-License-Identifier: Apache-2.0
"""Errors as TensorFlow's own: in eager mode, and a disagreement of the ranks in graphs, where a Python
function can raise no error of its choice."""

from __future__ import annotations

import functools

import tensorflow as tf

from hora.exceptions import HorovodInternalError, NotInitializedError, TensorMismatchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Not a directory: to open a file below it is a failed precondition, whose text has the whole path.
_NO_DIRECTORY = "/dev/null"
# The kernel takes longer paths for an error of another kind.
_LONGEST_TEXT = 3500


# What Horovod's own operations raise, by which programs recognise it; the first that fits counts.
_KINDS = (
    (TensorMismatchError, tf.errors.FailedPreconditionError),
    (NotInitializedError, tf.errors.FailedPreconditionError),
    (NotImplementedError, tf.errors.UnimplementedError),
    (HorovodInternalError, tf.errors.UnknownError),
    (ValueError, tf.errors.InvalidArgumentError),
    (TypeError, tf.errors.InvalidArgumentError),
)
CONVERTED = tuple(kind for kind, _ in _KINDS)


def in_tensorflow(error: BaseException) -> BaseException:
    """The error as one that is of a class of tf.errors, too."""
    if isinstance(error, tf.errors.OpError):
        return error
    kind, counterpart = next(each for each in _KINDS if isinstance(error, each[0]))
    base: Any = type(error) if isinstance(error, HorovodInternalError) else kind
    return _class_of(base, counterpart)(None, None, str(error)).with_traceback(error.__traceback__)


@functools.lru_cache(maxsize=None)
def _class_of(base, counterpart):
    # AutoGraph makes another one from the first three arguments and its own words.
    def __init__(self, node_def, op, message, *payloads):
        counterpart.__init__(self, node_def, op, message, *payloads)

    return type(base.__name__, (base, counterpart), {"__init__": __init__, "__module__": base.__module__})


def path_of(error: TensorMismatchError | None) -> bytes:
    """The file that checked() reads: none of that name if the ranks disagreed."""
    if error is None:
        return _NO_DIRECTORY.encode()
    text = f"{TensorMismatchError.__name__}: {error}".replace("\0", " ")
    return f"{_NO_DIRECTORY}/{text}".encode()[:_LONGEST_TEXT]


def checked(results: list[Any], path: Any) -> list[Any]:
    """The results, through nodes that fail as a failed precondition if path_of() named an error. TensorFlow
    gives the errors of Python functions kinds of its own; a missing directory is a way to fail with a text."""
    with tf.device("CPU:0"):
        nothing = tf.strings.length(tf.io.read_file(path))  # 0
    # The optimizer of graphs would take a mere control dependency on it away.
    return [tf.reshape(result, tf.shape(result) + nothing) for result in results]
