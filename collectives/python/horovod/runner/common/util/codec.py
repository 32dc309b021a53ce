# SPDX-License-Identifier: Apache-2.0
"""Objects as text."""

from __future__ import annotations

import base64

from hora import serialization

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def dumps_base64(obj: Any, to_ascii: bool = True) -> Any:
    """The object's cloudpickle in base64; bytes unless to_ascii."""
    encoded = base64.b64encode(serialization.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: str | bytes) -> Any:
    """The object of dumps_base64(). Only for text from a source that you trust."""
    return serialization.loads(base64.b64decode(encoded))
