# SPDX-License-Identifier: Apache-2.0
"""Runs a function on four ranks from within a program, and prints what each rank returned.

python3 docs/examples/run_function.py      # with the wheel of Hora installed, or its Python packages on PYTHONPATH
"""

import hora


def train(scale):
    import hora.numpy as hvd

    hvd.init()
    return float(hvd.allreduce([hvd.rank() * scale], op=hvd.Sum)[0])


if __name__ == "__main__":
    print(hora.run(train, args=(10.0,), np=4))
