# SPDX-License-Identifier: Apache-2.0
"""The errors that Hora raises.

HorovodInternalError is the one that scripts written for Horovod catch: a collective failed.
Its subclasses say why, so that an elastic job restarts after a lost peer, but does not
restart forever after a mistake in the script (a tensor of another shape on one rank).
"""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective failed. Unless it is a subclass, a peer was lost or has shut down."""

    #: True if an elastic job can recover in a new epoch (a lost peer); False for a mistake in the script.
    recoverable = True


class TensorMismatchError(HorovodInternalError, ValueError):
    """The ranks submitted different operations under one name. Every rank gets the same text, which
    names the tensor, two ranks and both values."""

    recoverable = False


class UnsupportedError(HorovodInternalError, NotImplementedError):
    """No backend of this job can run the operation; the text says why."""

    recoverable = False


class UnsupportedReductionError(UnsupportedError, ValueError):
    """The operation cannot reduce in this way, whatever the backend; nothing was sent."""


class NotInitializedError(HorovodInternalError, ValueError):
    """init() was not called, or shutdown() was."""

    recoverable = False

    @classmethod
    def before_init(cls, what: str) -> NotInitializedError:
        """For a function that was called before init() or after shutdown(). Programs recognise the error by its
        first words, which are Horovod's."""
        return cls(f"Horovod has not been initialized; use hvd.init(). {what}")


class CollectiveTimeoutError(HorovodInternalError):
    """A peer did not answer in time; the text names the operation and the missing ranks."""


class RemovedFromJob(SystemExit):
    """An elastic job no longer needs this process. If nothing catches the exception, the process exits
    with code 0."""

    def __init__(self, text: str = "") -> None:
        super().__init__(0)
        self.text = text


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job changed; raised between two steps of training.

    skip_sync is True when hosts only left, so that every remaining rank already agrees.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of this job changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A framework extension was built against another version. Kept for scripts that catch it:
    Hora compiles nothing against a framework, and so never raises it."""

    def __init__(self, name: str = "", version: str = "", installed_version: str = "") -> None:
        super().__init__(f"{name} {installed_version} is installed, but version {version} was expected")
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """The text of Horovod's version error. Kept for programs that import it."""
    return f"{name} {installed_version} is installed, but version {version} was expected; Hora needs no particular one"


def from_text(text: str) -> HorovodInternalError | None:
    """Our own error, where the text of a framework's error holds one ("TensorMismatchError: ...":
    a node of a graph or a compiled program failed); else None."""
    for kind in (
        CollectiveTimeoutError,
        TensorMismatchError,
        UnsupportedError,
        NotInitializedError,
        HorovodInternalError,
    ):
        mark = text.find(f"{kind.__name__}: ")
        if mark >= 0:
            return kind(text[mark + len(kind.__name__) + 2 :].split("\n", 1)[0])
    return None
