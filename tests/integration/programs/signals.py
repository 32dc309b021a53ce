# SPDX-License-Identifier: Apache-2.0
"""Prints each signal that ends it, and what Python runs then:  signals.py [SIGNAL...]

A SIGNAL that is named is printed and otherwise ignored."""

import atexit
import os
import signal
import sys
import time


def say(text):
    os.write(1, (text + "\n").encode())


def ends(number, frame):
    say(signal.Signals(number).name)
    sys.exit(3)


for name in ("SIGHUP", "SIGTERM", "SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), ends)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), lambda number, frame: say(signal.Signals(number).name))
atexit.register(say, "atexit")
try:
    say("ready")
    while True:
        time.sleep(0.05)
except KeyboardInterrupt:
    say("KeyboardInterrupt")
finally:
    say("finally")
