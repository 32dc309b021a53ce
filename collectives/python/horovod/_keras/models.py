# SPDX-License-Identifier: Apache-2.0
"""Loading saved models with their optimizers distributed."""

from __future__ import annotations

from horovod._keras.optimizer import distribute, is_distributed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def loader(keras: Any) -> Any:
    """Makes load_model() for one Keras.

    load_model(filepath, custom_optimizers=None, custom_objects=None, compression=None, legacy_opts=False) returns a
    saved model whose optimizer, with the state that was saved, is distributed. custom_optimizers is a list of classes,
    custom_objects a dict, as Keras takes them; legacy_opts is accepted. It does not communicate.
    """

    def load_model(filepath, custom_optimizers=None, custom_objects=None, compression=None, legacy_opts=False):
        """A saved model whose optimizer, with the state that was saved, is distributed.
        legacy_opts is accepted: optimizers of every generation are recognised."""
        known = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()}
        known.update(custom_objects or {})
        model = keras.models.load_model(filepath, custom_objects=known or None)
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and not is_distributed(optimizer):
            model.optimizer = distribute(optimizer, compression=compression)
            model.train_function = None
        return model

    return load_model
