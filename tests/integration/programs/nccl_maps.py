# SPDX-License-Identifier: Apache-2.0
"""Prints whether the NCCL backend works in this rank, and the file of the NCCL that it has loaded."""

import re

import hora

hora.init()
backend = next(each for each in hora.describe()["backends"] if each["id"] == "nccl")
maps = open("/proc/self/maps").read()
paths = sorted(set(re.findall(r"/\S*libnccl\S*\.so\S*", maps)) - set(re.findall(r"/\S*libhora_nccl\.so", maps)))
print("nccl", backend["usable"], *paths, backend.get("why_not") or "")
hora.shutdown()
