# SPDX-License-Identifier: Apache-2.0
"""GradientTapes whose gradients are reduced over the ranks."""

from __future__ import annotations

import tensorflow as tf

from hora.process_sets import global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import GradientReducer
from horovod.tensorflow.mpi_ops import Adasum, Average

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hora.process_sets import ProcessSet


class _DistributedTape:
    """What DistributedGradientTape adds to the class of the tape that it wraps."""

    def gradient(
        self,
        target,
        sources,
        output_gradients=None,
        use_generic_names=False,
        unconnected_gradients=tf.UnconnectedGradients.NONE,
    ):
        """The reduced gradients. Names are positions in any case: use_generic_names is
        accepted."""
        gradients = super(self.__class__, self).gradient(target, sources, output_gradients, unconnected_gradients)
        variables = tf.nest.flatten(sources)
        # None marks a source that the target does not depend on; IndexedSlices are one gradient.
        flat = tf.nest.flatten(gradients)
        reduced = self._hora_reducer.reduce(flat, variables)
        return tf.nest.pack_sequence_as(gradients, reduced)

    def register_local_source(self, source):
        """The gradient of this variable stays this rank's own."""
        self._hora_reducer.register_local(source)

    def get_local_and_global_gradients(self, target, sources, output_gradients=None, use_generic_names=False):
        """Two lists of (variable, gradient): of the local sources, and of the others, whose gradients are
        reduced."""
        sources = tf.nest.flatten(sources)
        gradients = self.gradient(target, sources, output_gradients)
        local, everywhere = [], []
        for source, gradient in zip(sources, gradients):
            (local if self._hora_reducer.is_local(source) else everywhere).append((source, gradient))
        return local, everywhere


def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps a tf.GradientTape: gradient() reduces what it returns over the ranks of process_set.

    The new tape shares what the given one has recorded. gradient() blocks until all ranks of the set have called it.

    Args:
        gradtape: the tape
        device_dense, device_sparse: accepted; gradients are reduced where they are
        compression: Compression.none, .fp16 or .bf16: wider floats travel as that type
        sparse_as_dense: reduce tf.IndexedSlices as dense tensors
        op: Average, Sum, or Adasum
        gradient_predivide_factor: with op=Average, divides by this before the sum and by size/factor after it
        num_groups: the older spelling of a number for groups
        groups: a number of groups, or lists of variables, whose gradients are reduced together
        process_set: the ranks that take part; the others keep their own gradients
        scale_local_gradients: divide the gradients of local variables by the size of the set

    Raises TypeError for what is not a tape, and ValueError for an argument out of range.
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"DistributedGradientTape takes a tf.GradientTape, not {gradtape!r}")
    cls = type(
        gradtape.__class__.__name__,
        (gradtape.__class__,),
        {name: value for name, value in vars(_DistributedTape).items() if name not in ("__dict__", "__weakref__")},
    )
    tape: Any = object.__new__(cls)
    tape.__dict__ = gradtape.__dict__
    tape._hora_reducer = GradientReducer(
        "DistributedGradientTape" + (".adasum" if op == Adasum else ""),
        op,
        compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local=scale_local_gradients,
    )
    return tape


def local_weights(local_layers: Any) -> list[Any]:
    """The trainable weights of a layer or of several."""
    if local_layers is None:
        return []
    if not isinstance(local_layers, (list, tuple)):
        local_layers = [local_layers]
    for layer in local_layers:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(f"local_layers takes Keras layers, not {type(layer).__name__}")
    return [weight for layer in local_layers for weight in layer.trainable_weights]


def PartialDistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A DistributedGradientTape that leaves the gradients of local_layers to each rank.

    local_layers is a Keras layer or a list of them. See DistributedGradientTape for the other arguments. ValueError
    for what is not a layer.
    """
    arguments = locals()
    tape = DistributedGradientTape(**{name: value for name, value in arguments.items() if name != "local_layers"})
    for weight in local_weights(local_layers):
        tape.register_local_source(weight)
    return tape
