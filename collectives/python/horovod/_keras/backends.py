# SPDX-License-Identifier: Apache-2.0
"""What differs between Keras's backends: how gradients are reduced, and what a value is."""

import sys

from hora.compression import CastCompressor, NoneCompressor


def backend_name(optimizer_or_model=None):
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


def is_keras2(keras):
    """Whether a keras module (tf.keras, tf_keras) is of the second generation."""
    return ".engine." in keras.layers.Layer.__module__


def make_reducer(backend, prefix, options):
    """The object with reduce(gradients, variables), register_local and densify for a backend."""
    if backend == "tensorflow":
        from horovod.tensorflow.compression import Compression
        from horovod.tensorflow.gradients import GradientReducer

        return GradientReducer(prefix, **_with_compression(options, Compression))
    if backend == "torch":
        from horovod._keras.torch_gradients import TorchReducer

        return TorchReducer(prefix, **options)
    if backend == "jax":
        from horovod._keras.jax_gradients import JaxReducer

        return JaxReducer(prefix, **options)
    raise ValueError(f"gradients of Keras's backend {backend} cannot be reduced; use tensorflow, jax or torch")


def compression_name(compression):
    """ "none", "fp16" or "bf16": the choice of any framework's Compression."""
    if compression is None:
        return "none"
    if isinstance(compression, str):
        return compression
    name = getattr(compression, "__name__", type(compression).__name__).lower()
    for known in ("none", "fp16", "bf16"):
        if name.startswith(known):
            return known
    raise ValueError(
        f"compression={compression!r}: a Compressor of one's own works with the "
        "TensorFlow backend; here use Compression.none, fp16 or bf16"
    )


def _with_compression(options, choices):
    compression = options.get("compression")
    if compression is None or isinstance(compression, str) or compression in vars(Compression).values():
        options = dict(options, compression=getattr(choices, compression_name(compression)))
    return options


class _Cast(CastCompressor):
    """By Keras's own operations, so that no framework is imported for it."""

    @staticmethod
    def is_floating(dtype):
        return "float" in str(dtype)

    @staticmethod
    def cast(tensor, dtype):
        import keras

        return keras.ops.cast(tensor, keras.backend.standardize_dtype(dtype))


class FP16Compressor(_Cast):
    wire_dtype = "float16"


class BF16Compressor(_Cast):
    wire_dtype = "bfloat16"


class Compression:
    """The choices for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
