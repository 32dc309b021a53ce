#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   TensorBoard 2.21.0; 2.12.3 behaves alike
# behaviour: of two ranks that write into one folder, what the earlier writer adds after the later one has begun is not read
#            any more; a TensorBoard that is started afterwards reads all of both.
# guess:     each rank has an event file of its own there, so all curves grow
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/howto/experiment-trackers.md, which says that one rank writes, or each into a folder of its own
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for release in 2.12.3 2.21.0; do
  python3 -m venv "$folder/$release"
  "$folder/$release/bin/pip" install -q "tensorboard==$release" 'setuptools<81' 'numpy<2' || { echo "needs PyPI"; exit 77; }
  seen=$("$folder/$release/bin/python" -W ignore - 2>"$folder/log" <<'PYTHON'
import tempfile
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

folder = tempfile.mkdtemp()
first = EventFileWriter(folder, filename_suffix=".0")
time.sleep(1.1)  # the names of the files begin with the second
second = EventFileWriter(folder, filename_suffix=".1")


def write(writer, tag, step):
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=step)])
    writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
    writer.flush()


def show(what, reader):
    reader.Reload()
    print(what, {tag: [event.step for event in reader.Scalars(tag)] for tag in ("rank0", "rank1")})


running = EventAccumulator(folder)
for step in range(3):
    write(first, "rank0", step)
    write(second, "rank1", step)
    show(f"step {step}", running)
show("started again", EventAccumulator(folder))
PYTHON
) || { cat "$folder/log"; exit 1; }
  echo "tensorboard $release"
  echo "$seen"
  [ "$seen" = "step 0 {'rank0': [0], 'rank1': [0]}
step 1 {'rank0': [0], 'rank1': [0, 1]}
step 2 {'rank0': [0], 'rank1': [0, 1, 2]}
started again {'rank0': [0, 1, 2], 'rank1': [0, 1, 2]}" ] ||
    { echo "event files are no longer read as described" >&2; exit 1; }
done
