# SPDX-License-Identifier: Apache-2.0
"""Rank 1 sleeps where it should not; the others wait for it in a function of their own."""

import os
import sys
import threading
import time


def waits_for_the_others():
    threading.Event().wait()


def loses_its_way():
    while True:
        time.sleep(0.05)


print("ready", flush=True)
if os.environ["HOROVOD_RANK"] == "1":
    loses_its_way()
waits_for_the_others()
sys.exit(3)
