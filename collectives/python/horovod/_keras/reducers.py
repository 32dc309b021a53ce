# SPDX-License-Identifier: Apache-2.0
"""Which reducer serves a backend. Frameworks are imported only for their own backend."""

from __future__ import annotations

from horovod._keras.compression import Compression, compression_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def make_reducer(backend: Any, prefix: str, options: dict[str, Any]) -> Any:
    """The object with reduce(gradients, variables), register_local and densify for a backend."""
    if backend == "tensorflow":
        from horovod.tensorflow.compression import Compression as TensorFlowCompression
        from horovod.tensorflow.gradients import GradientReducer

        return GradientReducer(prefix, **_with_compression(options, TensorFlowCompression))
    if backend == "torch":
        from horovod._keras.torch_gradients import TorchReducer

        return TorchReducer(prefix, **options)
    if backend == "jax":
        from horovod._keras.array_gradients import JaxReducer

        return JaxReducer(prefix, **options)
    raise ValueError(f"gradients of Keras's backend {backend} cannot be reduced; use tensorflow, jax or torch")


def _with_compression(options, choices):
    compression = options.get("compression")
    if compression is None or isinstance(compression, str) or compression in vars(Compression).values():
        options = dict(options, compression=getattr(choices, compression_name(compression)))
    return options
