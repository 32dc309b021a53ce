# SPDX-License-Identifier: Apache-2.0
"""Objects as bytes, for the peers of one job.

cloudpickle carries functions and classes of the main script too. Where it is not installed, the
copy that the bundle brings along is used, then plain pickle.
"""

from __future__ import annotations

import os
import pickle
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BUNDLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bundled")


def _pickler():
    """The module to pickle with. What cloudpickle made can only be read where it can be imported
    under its own name, so the bundled copy joins the end of the module path."""
    try:
        import cloudpickle

        return cloudpickle
    except ImportError:
        pass
    if os.path.isdir(_BUNDLED) and _BUNDLED not in sys.path:
        sys.path.append(_BUNDLED)
        try:
            import cloudpickle
            import cloudpickle.cloudpickle as implementation

            # The copy is that of the machine that built Hora, which may be older than this Python.
            if sys.version_info >= (3, 14) and _version_of(cloudpickle) < (3, 1, 1):
                implementation._getattribute = _attribute_and_owner
            return cloudpickle
        except ImportError:
            pass
    return pickle


def _version_of(module):
    return tuple(int(number) for number in module.__version__.split(".")[:3] if number.isdigit())


def _attribute_and_owner(obj, dotted_name):
    """What pickle._getattribute returned before Python 3.14, and cloudpickle before 3.1.1 expects of it."""
    owner = None
    for name in dotted_name.split("."):
        owner, obj = obj, getattr(obj, name)
    return obj, owner


def dumps(obj: Any, what: str = "this object") -> bytes:
    """Bytes for loads(); TypeError names what cannot be sent, and why."""
    try:
        return _pickler().dumps(obj, protocol=min(4, pickle.HIGHEST_PROTOCOL))
    except Exception as error:
        raise TypeError(f"{what} cannot be sent to another process: {type(error).__name__}: {error}") from error


def loads(data: bytes | memoryview, what: str = "an object") -> Any:
    """The object; ImportError names the module that this process lacks."""
    _pickler()
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"{what} needs something that this process cannot import: {error}. Make it importable "
            "here (install it, or send the file along), or define it in the main script"
        ) from error
