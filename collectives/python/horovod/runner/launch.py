# SPDX-License-Identifier: Apache-2.0
"""The launcher's command line, for `python -m horovod.runner.launch ...`."""

from __future__ import annotations

import os
import sys


def run_commandline() -> None:
    """Becomes horarun with this process's arguments, under the name that its users know."""
    from hora.launch import find_horarun

    horarun = find_horarun()
    os.execv(horarun, ["horovodrun", *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
