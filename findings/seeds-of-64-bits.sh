#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0, JAX 0.10.2 (CPU), NumPy 2.4.6, Python's random
# behaviour: on CPUs torch.manual_seed, and jax.random.key unless jax_enable_x64 is set, use the lower 32 bits of a seed and
#            drop the others: s and s + 2**32 are one stream. random.seed drops the sign. NumPy's default_rng uses all bits,
#            numpy.random.seed refuses more than 32, and jax.random.fold_in refuses more than 32, too.
# guess:     different seeds of 64 bits, such as (job << 32) + step or a hash, have different streams, or are refused
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 jax==0.10.2 numpy==2.4.6 || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
seen=$("$folder/bin/python" -W ignore - <<'PYTHON'
import random

import jax
import numpy as np
import torch


def with_torch(seed):
    torch.manual_seed(seed)
    return torch.rand(4).tolist()


def with_numpy(seed):
    np.random.seed(seed)
    return np.random.rand(4).tolist()


def with_random(seed):
    random.seed(seed)
    return random.random()


def compare(name, stream, first, second):
    try:
        print(f"{name}: {'equal' if stream(first) == stream(second) else 'different'}")
    except (OverflowError, ValueError):
        print(f"{name}: refused")


def key(seed):
    return jax.random.key_data(jax.random.key(seed)).tolist()


jobs = (1 << 32) + 7, (2 << 32) + 7
compare("torch.manual_seed", with_torch, *jobs)
compare("jax.random.key", key, *jobs)
compare("jax.random.fold_in", lambda seed: jax.random.key_data(jax.random.fold_in(jax.random.key(0), seed)).tolist(), *jobs)
compare("numpy.random.seed", with_numpy, *jobs)
compare("numpy.random.default_rng", lambda seed: np.random.default_rng(seed).random(), *jobs)
compare("random.seed", with_random, *jobs)
compare("random.seed, 7 and -7", with_random, 7, -7)
jax.config.update("jax_enable_x64", True)
compare("jax.random.key, x64", key, *jobs)
PYTHON
)
echo "$seen"
[ "$seen" = "torch.manual_seed: equal
jax.random.key: equal
jax.random.fold_in: refused
numpy.random.seed: refused
numpy.random.default_rng: different
random.seed: different
random.seed, 7 and -7: equal
jax.random.key, x64: different" ] || { echo "they no longer behave as described" >&2; exit 1; }
