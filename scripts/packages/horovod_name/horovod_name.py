# SPDX-License-Identifier: Apache-2.0
"""Makes `horovod-0.28.1+hora.VERSION.tar.gz`: a distribution that has the name of Horovod and nothing else. Where it is
installed, `importlib.metadata.version("horovod")`, `pip show horovod` and a package that requires `horovod>=0.28` find
what they look for; the modules come from Hora's own wheel, which it requires in the same version.

It is a source archive, not a wheel, because only that can refuse: pip calls build_wheel() below before it installs, and
would otherwise replace a real Horovod without a word. The same file makes the archive, by build_sdist(), and is in it.
"""

import base64
import glob
import hashlib
import importlib.metadata
import io
import os
import re
import sysconfig
import tarfile
import zipfile

# What the names of the interface come from (docs/reference/python-api.md).
HOROVOD = "0.28.1"
MARK = "+hora."
FOLDER = os.path.dirname(os.path.abspath(__file__))

METADATA = """\
Metadata-Version: 2.1
Name: horovod
Version: {horovod}{mark}{hora}
Summary: The name of Horovod for packages that require it, where Hora takes its place
License: Apache-2.0
Requires-Python: >=3.8
Requires-Dist: hora=={hora}

Holds no modules. `import horovod` finds those of Hora.
"""

PYPROJECT = """\
[build-system]
requires = []
build-backend = "horovod_name"
backend-path = ["."]
"""


def hora_version():
    """In the archive, what it was made for; in the repository, the project's."""
    for path, pattern in (
        ("PKG-INFO", r"^Requires-Dist: hora==(.*)$"),
        ("../../../CMakeLists.txt", r"hora VERSION ([\d.]+)"),
    ):
        path = os.path.join(FOLDER, path)
        if os.path.exists(path):
            with open(path) as file:
                return re.search(pattern, file.read(), re.M).group(1)
    raise SystemExit(f"{FOLDER} is neither the archive nor Hora's repository")


def metadata():
    return METADATA.format(horovod=HOROVOD, mark=MARK, hora=hora_version())


def version():
    return HOROVOD + MARK + hora_version()


def real_horovod():
    """The version of a Horovod that is installed where pip is about to install, or None. pip hides that
    place from a build, but not its path."""
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    # Debian's own Python: packages of apt.
    places.update(glob.glob("/usr/lib/python3/dist-packages") if sysconfig.get_path("data").startswith("/usr") else [])
    for found in importlib.metadata.distributions(path=sorted(places)):
        if (found.metadata["Name"] or "").lower() == "horovod" and MARK not in found.version:
            return found.version
    return None


def refuse_next_to_real_horovod():
    found = real_horovod()
    if found is not None:
        raise SystemExit(
            f"Horovod {found} is installed here, and this distribution would replace it: both have the name horovod. "
            "Remove it first (pip uninstall horovod), or use another environment."
        )


def get_requires_for_build_wheel(config_settings=None):
    refuse_next_to_real_horovod()
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    refuse_next_to_real_horovod()
    info = f"horovod-{version()}.dist-info"
    files = {
        f"{info}/METADATA": metadata(),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hora\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    name = f"horovod-{version()}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        record = ""
        for path, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text.encode())}\n"
        files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)  # of 1980: the same input gives the same bytes
    return name


def build_sdist(sdist_directory, config_settings=None):
    root = f"horovod-{version()}"
    with open(os.path.abspath(__file__)) as file:
        files = {"PKG-INFO": metadata(), "pyproject.toml": PYPROJECT, "horovod_name.py": file.read()}
    with tarfile.open(os.path.join(sdist_directory, f"{root}.tar.gz"), "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mode = len(text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return f"{root}.tar.gz"
