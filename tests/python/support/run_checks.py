# SPDX-License-Identifier: Apache-2.0
"""A rank of a job of checks: calls every check_* function of the files, in order, and writes one line
of JSON for each into the folder that it is given.

    run_checks.py FOLDER FILE...

A check that fails on one rank only leaves the others waiting in it; the job's time-out ends that,
and the lines written so far say where each rank was.
"""

import faulthandler
import importlib.util
import json
import os
import pathlib
import sys
import traceback


def load(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main():
    folder, *files = sys.argv[1:]
    # Where each rank stands, should the job hang.
    faulthandler.dump_traceback_later(float(os.environ.get("HORA_TEST_DUMP_AFTER", "120")))
    modules = [load(file) for file in files]
    modules[0].hvd.init()
    rank = modules[0].hvd.rank()
    with open(os.path.join(folder, f"rank{rank}.jsonl"), "w", buffering=1) as lines:
        for module, name, check in [
            (each, f"{each.__name__}.{name}", check)
            for each in modules
            for name, check in vars(each).items()
            if name.startswith("check_")
        ]:
            lines.write(json.dumps({"check": name, "state": "started"}) + "\n")
            try:
                check()
                state, text = "ok", ""
            except module_skip(module) as skipped:
                state, text = "skipped", str(skipped)
            except Exception:
                state, text = "failed", traceback.format_exc()
            lines.write(json.dumps({"check": name, "state": state, "text": text}) + "\n")
    modules[0].hvd.shutdown()


def module_skip(module):
    return getattr(module, "Skip", ())


if __name__ == "__main__":
    main()
