# SPDX-License-Identifier: Apache-2.0
"""Estimates pi on every rank and adds up the counts: NumPy arrays, no framework.

horarun -np 4 python3 docs/examples/numpy_pi.py
"""

import numpy as np

import hora.numpy as hvd


def main():
    hvd.init()
    points = np.random.default_rng(hvd.rank()).random((250_000, 2))
    counts = np.array([np.count_nonzero((points**2).sum(axis=1) < 1.0), len(points)])
    inside, total = hvd.allreduce(counts, op=hvd.Sum)
    if hvd.rank() == 0:
        print(f"{hvd.size()} rank(s), {total} points: pi is about {4 * inside / total:.3f}", flush=True)


if __name__ == "__main__":
    main()
