# SPDX-License-Identifier: Apache-2.0
"""start_timeline() and stop_timeline() in a job with HOROVOD_TIMELINE=DYNAMIC: nothing is recorded
but what runs between them."""

import json
import os
import pathlib
import shutil
import tempfile

import numpy as np

import hora.numpy as hvd
from hora.exceptions import UnsupportedError
from support.expect import raises


class Skip(Exception):
    pass


def shared_folder():
    return pathlib.Path(
        hvd.broadcast_object(tempfile.mkdtemp(prefix="hora-test-") if hvd.rank() == 0 else None, name="folder")
    )


def check_only_what_lies_between_is_recorded():
    folder = shared_folder()
    path = folder / "timeline.json"
    hvd.allreduce(np.ones(3), name="earlier")
    try:
        hvd.start_timeline(str(path), mark_cycles=True)
    except UnsupportedError as error:
        hvd.barrier()
        if hvd.rank() == 0:
            os.rmdir(folder)
        raise Skip(str(error)) from None
    hvd.allreduce(np.ones(3), name='with "quotes"')
    hvd.allgather(np.ones((2, 2)), name="rows")
    hvd.stop_timeline()
    hvd.barrier()  # rank 0 records what it learns of other ranks' requests, too
    hvd.allreduce(np.ones(3), name="later")
    hvd.barrier()
    if hvd.rank() == 0:
        events = json.loads(path.read_text())
        names = {
            event["args"]["name"]
            for event in events
            if event.get("name") == "process_name" and "name" in event.get("args", {})
        }
        assert 'allreduce.with "quotes"' in names and "allgather.rows" in names, names
        assert not any("earlier" in name or "later" in name for name in names), names
        kinds = {event.get("name") for event in events}
        assert {"ALLREDUCE", "ALLGATHER"} <= kinds, kinds
        shutil.rmtree(folder)
    hvd.barrier()


def check_stopping_twice_is_harmless():
    try:
        hvd.stop_timeline()
    except UnsupportedError as error:
        raise Skip(str(error)) from None
    except ValueError:
        pass


def check_before_init():
    hvd.shutdown()
    raises(ValueError, hvd.start_timeline, "/nowhere/t.json")
    raises(ValueError, hvd.stop_timeline)
    hvd.init()
    hvd.barrier()
