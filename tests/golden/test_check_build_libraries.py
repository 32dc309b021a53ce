# SPDX-License-Identifier: Apache-2.0
"""--check-build with and without each library of the site: hidden from horarun alone, by a mount of its own."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

HORARUN = pathlib.Path(os.environ["HORARUN"]).resolve()
BUNDLE = HORARUN.parent.parent / "share/hora" / os.uname().machine / "bundle"


def can_hide():
    return (
        shutil.which("unshare") is not None
        and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    )


pytestmark = pytest.mark.skipif(not can_hide(), reason="no mount namespaces here (they take root)")


def check_build(hidden=()):
    """What it says when the loader cannot read those files."""
    hide = "".join(f"mount --bind /dev/null '{path}' && " for path in hidden)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hide + 'exec "$0" --check-build --json', str(HORARUN)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stderr == "", done
    found = json.loads(done.stdout)
    return found, {row["name"]: row for row in found["features"]}


def known_as(name):
    """The files behind a name of the loader's."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return sorted({os.path.realpath(path) for path in re.findall(rf"\b{re.escape(name)} .* => (\S+)", listed)})


def library(name):
    """The same; skips where there are none."""
    found = known_as(name)
    if not found:
        pytest.skip(f"{name} is not on this machine")
    return found


@pytest.mark.parametrize(
    "feature, name, built",
    [
        ("NCCL", "libnccl.so.2", "lib/libhora_nccl.so"),
        ("MPI", "libmpi.so.40", "lib/libhora_mpi.so"),
        ("PMIX", "libpmix.so.2", "bin/hora-pmix"),
    ],
)
def test_with_and_without_the_library(feature, name, built):
    if not (BUNDLE / built).exists():
        pytest.skip(f"built without {feature}")
    files = library(name)
    whole, features = check_build()
    row = features[feature]
    assert row["built"] and row["loads"] and row["note"] == "" and os.path.realpath(row["path"]) in files, row
    assert row["version_found"] != ""
    whole_boxes = whole["tensor_operations"]
    assert whole_boxes.get(feature, True)

    if feature == "MPI":
        files += known_as("libmpich.so.12")  # in Ubuntu 24.04 libmpi.so.12 is a link to it, and would be found instead
    bare, features = check_build(files)
    row = features[feature]
    assert row["built"] and not row["loads"] and row["path"] == "" and name.split(".")[0] in row["note"], row
    if feature == "MPI":
        assert re.fullmatch(r"Open MPI cannot be loaded: \S*libmpi\.so\.40: .+", row["note"]), row
    # Its boxes, and no others but those of what needs the same library (Open MPI itself needs PMIx).
    gone = {box for box in whole_boxes if whole_boxes[box] and not bare["tensor_operations"][box]}
    assert gone <= ({"MPI"} if feature == "PMIX" else {feature}), gone
    if feature != "PMIX":
        assert gone == {feature}
    assert bare["controllers"]["MPI"] == bare["tensor_operations"]["MPI"]
    assert bare["runtime"]["error"] == ""
