# SPDX-License-Identifier: Apache-2.0
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

# A shell's background jobs, and their children, ignore these; the ranks that are started here must get them.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
