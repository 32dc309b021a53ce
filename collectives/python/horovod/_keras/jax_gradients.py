# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras's JAX backend, inside and outside of jit."""

from horovod._keras.array_gradients import ArrayReducer


class JaxReducer(ArrayReducer):
    def reduce_units(self, units, names):
        from hora.jax_operations import allreduce_units

        return allreduce_units(units, names, self.op, self.prescale, self.postscale, self.process_set, self.compression)
