# SPDX-License-Identifier: Apache-2.0
"""A disagreement of the ranks, as TensorFlow's own error: in eager mode, and in graphs, where a Python
function can raise no error of its choice."""

from __future__ import annotations

import tensorflow as tf

from hora.exceptions import TensorMismatchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Not a directory: to open a file below it is a failed precondition, whose text has the whole path.
_NO_DIRECTORY = "/dev/null"
# The kernel takes longer paths for an error of another kind.
_LONGEST_TEXT = 3500


class MismatchInTensorFlow(TensorMismatchError, tf.errors.FailedPreconditionError):
    """The ranks submitted different operations under one name."""

    def __init__(self, text: str) -> None:
        tf.errors.FailedPreconditionError.__init__(self, None, None, text)


MismatchInTensorFlow.__name__ = MismatchInTensorFlow.__qualname__ = TensorMismatchError.__name__


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
