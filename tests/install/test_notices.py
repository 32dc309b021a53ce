# SPDX-License-Identifier: Apache-2.0
"""scripts/cmake/third-party-notices with a root of another distribution."""

import json
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


def test_the_bill_of_materials_names_versions_and_licences(tmp_path):
    gloo = tmp_path / "gloo"
    gloo.mkdir()
    (gloo / "LICENSE").write_text("the licence of Gloo\n")
    (gloo / "CMakeLists.txt").write_text(
        "set(GLOO_VERSION_MAJOR 0)\nset(GLOO_VERSION_MINOR 5)\nset(GLOO_VERSION_PATCH 1)\n"
    )
    newer = tmp_path / "cloudpickle" / "cloudpickle-3.1.3.dist-info"
    newer.mkdir(parents=True)
    (newer / "LICENSE").write_text("the licence of cloudpickle\n")
    bills = []
    for name in ("first", "second"):
        bill = tmp_path / f"{name}.json"
        subprocess.run(
            [SCRIPT, "--output", tmp_path / "notices.txt", "--sbom", bill, "--version", "1.2.3", "--gloo", gloo,
             "--cloudpickle", newer.parent, "--without", "libssh"],
            check=True, timeout=60,
        )  # fmt: skip
        bills.append(bill.read_text())
    assert bills[0] == bills[1]
    bill = json.loads(bills[0])
    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["component"]["version"]) == (
        "CycloneDX",
        "1.6",
        "1.2.3",
    )
    of_name = {}
    for component in bill["components"]:
        of_name.setdefault(component["name"], []).append(component)
    assert "libssh" not in of_name
    assert of_name["Gloo"][0]["version"] == "0.5.1" and "purl" not in of_name["Gloo"][0]
    assert of_name["cloudpickle"][-1]["purl"] == "pkg:pypi/cloudpickle@3.1.3"
    assert of_name["GNU C++ runtime"][0]["licenses"] == [{"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}]
    assert of_name["zlib"][0]["licenses"] == [{"license": {"id": "Zlib"}}]
