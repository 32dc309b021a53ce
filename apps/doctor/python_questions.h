// SPDX-License-Identifier: Apache-2.0
// The program that asks a host's Python about itself; it prints one JSON object. Nothing is
// imported but the standard library, unless its argument is "deep".
#pragma once

namespace hora::doctor {

inline constexpr const char* kPythonQuestions = R"PY(
import glob, json, os, re, sys, time
out = {"path": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3], "packages": {}, "nccl": []}
try:
    from importlib import metadata
except ImportError:
    metadata = None
NAMES = ["torch", "tensorflow", "jax", "jaxlib", "numpy", "horovod", "mpi4py", "deepspeed", "keras", "mxnet",
         "cloudpickle", "protobuf", "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12",
         "cupy-cuda12x", "accelerate", "pytorch-lightning", "ray"]
for name in NAMES if metadata else []:
    try:
        out["packages"][name] = metadata.version(name)
    except Exception:
        pass
folders = [p for p in sys.path if p and os.path.isdir(p)]
for folder in folders:
    text = ""
    try:
        with open(os.path.join(folder, "torch", "version.py")) as file:
            text = file.read()
    except OSError:
        pass
    for key in ("cuda", "hip"):
        found = re.search(r"^%s\b[^=]*=\s*'([^']+)'" % key, text, re.M)
        if found:
            out["torch_" + key] = found.group(1)
    for pattern in ("nvidia/nccl/lib/libnccl.so*", "torch/lib/libnccl.so*", "cupy/.data/lib/libnccl.so*",
                    "tensorflow/libnccl.so*"):
        out["nccl"] += sorted(glob.glob(os.path.join(folder, pattern)))
if sys.argv[-1] == "deep":
    out["imports"] = {}
    SELFTESTS = {"numpy": "import numpy; assert numpy.ones(4).sum() == 4",
              "torch": "import torch; assert float(torch.ones(4).sum()) == 4;"
                       "torch.cuda.is_available() and torch.ones(4, device='cuda').sum().item()",
              "tensorflow": "import tensorflow as tf; assert float(tf.reduce_sum(tf.ones(4))) == 4",
              "jax": "import jax.numpy as jnp; assert float(jnp.ones(4).sum()) == 4"}
    for name, selftest in SELFTESTS.items():
        if name not in out["packages"]:
            continue
        began = time.time()
        try:
            exec(selftest, {})
            out["imports"][name] = {"seconds": round(time.time() - began, 3)}
        except BaseException as error:
            out["imports"][name] = {"error": "%s: %s" % (type(error).__name__, str(error)[:300])}
print(json.dumps(out))
)PY";

}  // namespace hora::doctor
