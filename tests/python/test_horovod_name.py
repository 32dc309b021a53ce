# SPDX-License-Identifier: Apache-2.0
"""The distribution that gives Hora the name horovod: code that looks for Horovod finds it, and a real
one is not replaced."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import textwrap
import venv

import pytest

from support import job

MODULE = pathlib.Path(job.ROOT, "scripts", "packages", "horovod_name", "horovod_name.py")


def load():
    spec = importlib.util.spec_from_file_location("horovod_name", MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    return folder / load().build_sdist(folder)


class Environment:
    def __init__(self, folder):
        self.python = folder / "bin" / "python"

    def run(self, *words, code=0):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
        done = subprocess.run([self.python, *words], capture_output=True, text=True, timeout=180, env=env, cwd="/")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def pip(self, *words, code=0):
        return self.run("-m", "pip", "--disable-pip-version-check", *words, code=code)

    def put(self, name, version):
        """A distribution as pip leaves it."""
        folder = self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        info = pathlib.Path(folder, f"{name}-{version}.dist-info")
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text("")
        (info / "INSTALLER").write_text("pip\n")


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory):
    if importlib.util.find_spec("ensurepip") is None:
        pytest.skip("no python3-venv")
    folder = tmp_path_factory.mktemp("empty") / "env"
    venv.create(folder, with_pip=True)
    return folder


@pytest.fixture
def environment(empty_environment, tmp_path):
    shutil.copytree(empty_environment, tmp_path / "env", symlinks=True)
    return Environment(tmp_path / "env")


def test_the_name_is_found(archive, environment, tmp_path):
    version = load().version()
    environment.put("hora", load().hora_version())
    environment.pip("install", "--no-index", archive)
    assert f"Version: {version}" in environment.pip("show", "horovod")
    found = environment.run("-c", "import importlib.metadata as m; print(m.version('horovod'))")
    assert found.strip() == version == f"0.28.1+hora.{load().hora_version()}"
    # A user's package, with a requirement of its own.
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        textwrap.dedent(
            """\
            [build-system]
            requires = []
            build-backend = "backend"
            backend-path = ["."]
            """
        )
    )
    (project / "backend.py").write_text(
        textwrap.dedent(
            """\
            import zipfile
            def build_wheel(folder, config_settings=None, metadata_directory=None):
                with zipfile.ZipFile(folder + "/theirs-1.0-py3-none-any.whl", "w") as archive:
                    archive.writestr("theirs-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: theirs\\n"
                                     "Version: 1.0\\nRequires-Dist: horovod (>=0.28)\\n"
                                     "Requires-Dist: horovod (==0.28.1)\\n")
                    archive.writestr("theirs-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n"
                                     "Tag: py3-none-any\\n")
                    archive.writestr("theirs-1.0.dist-info/RECORD", "")
                return "theirs-1.0-py3-none-any.whl"
            """
        )
    )
    environment.pip("install", "--no-index", project)
    assert "No broken requirements" in environment.pip("check")
    environment.pip("uninstall", "--yes", "horovod")
    assert "not found" in environment.pip("show", "horovod", code=1)


def test_without_hora_it_is_not_installed(archive, environment):
    output = environment.pip("install", "--no-index", archive, code=1)
    assert f"hora=={load().hora_version()}" in output, output
    assert "not found" in environment.pip("show", "horovod", code=1)


@pytest.mark.parametrize("version", ["0.27.0", "0.28.1"])
def test_a_real_horovod_is_not_replaced(archive, environment, version):
    environment.put("hora", load().hora_version())
    environment.put("horovod", version)
    output = environment.pip("install", "--no-index", archive, code=1)
    assert f"Horovod {version} is installed here, and this distribution would replace it" in output, output
    assert f"Version: {version}" in environment.pip("show", "horovod")


def test_its_own_older_one_is(archive, environment):
    environment.put("hora", load().hora_version())
    environment.put("horovod", "0.28.1+hora.0.0.1")
    environment.pip("install", "--no-index", archive)
    assert f"Version: {load().version()}" in environment.pip("show", "horovod")
