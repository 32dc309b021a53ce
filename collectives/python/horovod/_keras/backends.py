# SPDX-License-Identifier: Apache-2.0
"""Which backend and which generation of Keras is in use."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def backend_name(optimizer_or_model: Any = None) -> str:
    """ "tensorflow", "jax" or "torch": the backend of the Keras in use. Keras 2 has TensorFlow."""
    keras = sys.modules.get("keras")
    if optimizer_or_model is not None:
        roots = {cls.__module__.split(".", 1)[0] for cls in type(optimizer_or_model).__mro__}
        if "keras" not in roots:
            return "tensorflow"
    config = getattr(keras, "config", None)
    if config is not None and hasattr(config, "backend"):
        return config.backend()
    return "tensorflow"


def is_keras2(keras: Any) -> bool:
    """Whether a keras module (tf.keras, tf_keras) is of the second generation."""
    return ".engine." in keras.layers.Layer.__module__
