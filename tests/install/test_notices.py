# SPDX-License-Identifier: Apache-2.0
"""scripts/cmake/third-party-notices with a root of another distribution."""

import pathlib
import subprocess

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "cmake" / "third-party-notices"


def test_a_package_whose_licence_is_a_link_to_a_renamed_one(tmp_path):
    # As on Ubuntu 24.04, where libssl-dev still names libssl3 and the library is in libssl3t64.
    doc = tmp_path / "usr/share/doc"
    for package in ("libssl-dev", "libssl3", "libssl3t64"):
        (doc / package).mkdir(parents=True)
    (doc / "libssl-dev/copyright").symlink_to("../libssl3/copyright")
    (doc / "libssl3t64/copyright").write_text("the licence of the renamed package\n")
    output = tmp_path / "notices.txt"
    subprocess.run([SCRIPT, "--output", output, "--root", tmp_path], check=True, timeout=60)
    text = output.read_text(encoding="utf-8")
    assert "https://www.openssl.org; package libssl3t64" in text
    assert "the licence of the renamed package" in text
