# SPDX-License-Identifier: Apache-2.0
"""`--ship-env DIR`: ranks run the Python of an environment that their hosts do not have."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

from test_ship_folder import forget, received, sent

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SYSTEM = f"/usr/bin/{VERSION}"
WHERE = "import sys, mine; print(sys.prefix, sys.executable, mine.__file__, mine.NAME)"

pytestmark = pytest.mark.skipif(not os.path.isfile(SYSTEM), reason=f"needs {SYSTEM}")


def make_base(folder):
    """A Python of its own, as uv or pyenv install them, made of this machine's."""
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        folder / "lib" / VERSION,
        symlinks=True,
        ignore=shutil.ignore_patterns("test", "idlelib", "dist-packages", "site-packages", "__pycache__", "*.a"),
    )
    # Debian's looks for packages elsewhere than all others.
    (folder / "lib" / VERSION / "dist-packages").symlink_to("site-packages")
    (folder / "bin").mkdir()
    shutil.copy(SYSTEM, folder / "bin" / VERSION)
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(VERSION)
    return folder / "bin" / VERSION


def add_package(folder, name="mine"):
    """A module, a script, and 3 MB that do not compress."""
    packages = folder / "lib" / VERSION / "site-packages"
    (packages / name).mkdir(parents=True)
    (packages / name / "__init__.py").write_text(f"NAME = 'the package {name}'\n")
    (packages / name / "data.bin").write_bytes(os.urandom(3_000_000))
    script = folder / "bin" / f"run-{name}"
    script.write_text(
        f"#!{folder}/bin/python -u\nimport {name}, sys\nprint({name}.NAME, sys.argv[1:], sys.executable)\n"
    )
    script.chmod(0o755)
    return packages


def make_environment(folder, program=SYSTEM):
    subprocess.run([program, "-m", "venv", "--without-pip", folder], check=True)
    add_package(folder)
    return folder


def launch(horarun, nodes, environment, *options, command, **more):
    return horarun.run("-H", nodes.spec(1), "--json", "--ship-env", str(environment), *options, *command, **more)


def root_on_hosts(done):
    """Where the environment lies, from what WHERE printed: the same on each host here."""
    prefix, program, module, text = done.ranks()[0][0].split(" ", 3)
    assert prefix.startswith("/root/.cache/hora/") and text == "the package mine", done
    assert program == f"{prefix}/bin/python" and module.startswith(f"{prefix}/lib/"), done
    return prefix


def test_a_virtual_environment_of_the_system_python(horarun, hosts, tmp_path):
    nodes = hosts(2)
    environment = make_environment(tmp_path / "venv")
    forget(nodes)
    horarun.run("-H", nodes.spec(1), "true").expect(0)  # the runtime

    first = launch(horarun, nodes, environment, command=["python", "-c", WHERE]).expect(0)
    root = root_on_hosts(first)
    assert first.ranks()[0] == first.ranks()[1], first
    assert 6_000_000 < sent(first) < 6_200_000, received(first)
    script = launch(horarun, nodes, environment, command=["run-mine", "a b"]).expect(0)
    assert received(script) == {}, script
    assert script.ranks()[1] == [f"the package mine ['a b'] {root}/bin/python"], script
    # A program of it by its path here, and the variable that activation would set.
    named = launch(
        horarun,
        nodes,
        environment,
        command=[f"{environment}/bin/python", "-c", "import os; print(os.environ['VIRTUAL_ENV'])"],
    )
    assert named.expect(0).ranks()[0] == [root], named

    # What was changed travels, and nothing else.
    (environment / "lib" / VERSION / "site-packages" / "mine" / "__init__.py").write_text(
        "NAME = 'the package mine'  # 2\n"
    )
    changed = launch(horarun, nodes, environment, command=["python", "-c", WHERE]).expect(0)
    assert 0 < sent(changed) < 6_200_000 and root_on_hosts(changed) != root, received(changed)
    # Made again with the same contents: nothing travels, whatever the times of its files.
    other = tmp_path / "other"
    subprocess.run([SYSTEM, "-m", "venv", "--without-pip", other], check=True)
    shutil.copytree(
        environment / "lib" / VERSION / "site-packages",
        other / "lib" / VERSION / "site-packages",
        dirs_exist_ok=True,
        copy_function=shutil.copy,
    )
    script = (environment / "bin" / "run-mine").read_text().replace(str(environment), str(other))
    (other / "bin" / "run-mine").write_text(script)
    (other / "bin" / "run-mine").chmod(0o755)
    again = launch(horarun, nodes, other, command=["run-mine"]).expect(0)
    assert received(again) == {}, received(again)


def test_compiled_modules_travel_and_are_used(horarun, hosts, tmp_path):
    nodes = hosts(1)
    environment = make_environment(tmp_path / "venv")
    module = environment / "lib" / VERSION / "site-packages" / "slow.py"
    module.write_text("print('from the source')\n")
    subprocess.run([SYSTEM, "-m", "compileall", "-q", module.parent], check=True)
    # What is compiled is used as it is: the source is not even looked at.
    times = os.stat(module)
    module.write_text("print('FROM THE SOURCE')\n")
    os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = launch(horarun, nodes, environment, command=["python", "-c", "import slow"]).expect(0)
    assert done.ranks()[0] == ["from the source"], done
    # Out of date here: Python would not use it, so it does not travel.
    os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns + 5_000_000_000))
    done = launch(horarun, nodes, environment, command=["python", "-c", "import slow"]).expect(0)
    assert done.ranks()[0] == ["FROM THE SOURCE"], done


@pytest.mark.parametrize("kind", ["virtual", "whole", "conda"])
def test_an_environment_with_its_own_python(horarun, hosts, tmp_path, kind):
    """The hosts have no Python at all."""
    nodes = hosts(2, without=["python3", VERSION])
    program = make_base(tmp_path / "base")
    if kind == "virtual":
        environment = make_environment(tmp_path / "venv", program)
    else:
        environment = tmp_path / "base"
        add_package(environment)
        if kind == "conda":
            (environment / "conda-meta").mkdir()
            (environment / "conda-meta" / "history").write_text("")
    done = launch(horarun, nodes, environment, command=["python", "-c", WHERE]).expect(0)
    root = root_on_hosts(done)
    for name in ("python3", VERSION):
        where = "import os, sys; print(sys.prefix, os.__file__)"
        done = launch(horarun, nodes, environment, command=[name, "-c", where]).expect(0)
        assert received(done) == {} and done.ranks()[1] == [f"{root} {root}/lib/{VERSION}/os.py"], done
    done = launch(horarun, nodes, environment, command=["run-mine"]).expect(0)
    assert done.ranks()[1] == [f"the package mine [] {root}/bin/python"], done
    name, other = ("CONDA_PREFIX", "VIRTUAL_ENV") if kind == "conda" else ("VIRTUAL_ENV", "CONDA_PREFIX")
    command = ["sh", "-c", f"echo ${name}/${other}"]
    done = launch(horarun, nodes, environment, "-x", f"{other}=/opt/other", command=command).expect(0)
    assert done.ranks()[1] == [f"{root}/"], done


def test_each_of_several_programs_may_be_of_it(horarun, hosts, tmp_path):
    nodes = hosts(1)
    environment = make_environment(tmp_path / "venv")
    python = [f"{environment}/bin/python", "-c", "import sys; print(sys.prefix)"]
    options = ["-H", nodes.spec(2), "--ship-env", str(environment), "-np", "1"]
    done = horarun.run(*options, *python, ":", "-np", "1", *python).expect(0)
    assert done.ranks()[0] == done.ranks()[1] and "/.cache/hora/" in done.ranks()[1][0], done


def test_a_host_without_the_python_is_reported_before_anything_starts(horarun, hosts, tmp_path):
    nodes = hosts(2, without=["python3", VERSION])
    forget(nodes)
    environment = make_environment(tmp_path / "venv")
    done = launch(horarun, nodes, environment, command=["echo", "started"])
    assert done.code == 125 and "E_SHIP" in done.messages, done
    assert f"no {SYSTEM}" in done.messages and "--ship-env" in done.messages, done
    assert "started" not in done.text and sent(done) < 3_000_000, done


def test_packages_that_lie_elsewhere_are_named_once(horarun, hosts, tmp_path):
    nodes = hosts(2)
    environment = make_environment(tmp_path / "venv")
    packages = environment / "lib" / VERSION / "site-packages"
    (packages / "easy.pth").write_text("/opt/somewhere\nimport os\n")
    info = packages / "project-1.0.dist-info"
    info.mkdir()
    url = {"dir_info": {"editable": True}, "url": f"file://{tmp_path}/project"}
    (info / "direct_url.json").write_text(json.dumps(url))
    done = horarun.run("-H", nodes.spec(1), "--ship-env", str(environment), "python", "-c", WHERE).expect(0)
    text = f"project ({tmp_path}/project), easy.pth (/opt/somewhere)"
    assert done.messages.count(text) == 1, done


def test_a_project_with_its_environment_in_it(horarun, hosts, tmp_path):
    nodes = hosts(1)
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("import mine, os; print(mine.NAME, sorted(os.listdir('.')))\n")
    make_environment(project / ".venv")
    done = horarun.run(
        "-H", nodes.spec(1), "--ship", ".", "--ship-env", ".venv", ".venv/bin/python", "train.py", cwd=project
    )
    assert done.expect(0).ranks()[0] == ["the package mine ['train.py']"], done


def test_dry_run_shows_what_would_travel(horarun, tmp_path):
    environment = make_environment(tmp_path / "venv")
    done = horarun.run("-np", "1", "--dry-run", "--ship-env", str(environment), "python").expect(0)
    line = next(line for line in done.text.splitlines() if line.startswith("environment "))
    assert f"{VERSION[6:]}, hosts need {SYSTEM}" in line and " files, 2.9M" in line, done


def test_an_invalid_environment_starts_nothing(horarun, hosts, tmp_path):
    nodes = hosts(1)
    (tmp_path / "empty").mkdir()
    for path, code, text in [
        (tmp_path / "none", 2, "none: no such folder"),
        (tmp_path / "empty", 125, "[E_SHIP]"),
        (tmp_path / "empty", 125, "neither pyvenv.cfg nor bin/python"),
        (pathlib.Path("/usr"), 125, "this machine's own"),
    ]:
        done = launch(horarun, nodes, path, command=["echo", "started"])
        assert done.code == code and text in done.messages, done
        assert "started" not in done.text


def test_hosts_pass_it_on_and_ranks_cannot_write_to_its_files(horarun, hosts, tmp_path):
    nodes = hosts(12)
    environment = make_environment(tmp_path / "venv")
    horarun.run("-H", nodes.spec(1), "true").expect(0)
    mode = "import mine, os; print(oct(os.stat(mine.__file__).st_mode & 0o777))"
    done = launch(horarun, nodes, environment, command=["python", "-c", mode])
    assert {lines[0] for lines in done.expect(0).ranks().values()} == {"0o444"}, done
    got = received(done)
    whole = {sum(each) for each in got.values()}
    assert len(got) == 12 and len(whole) == 1 and sent(done) <= 8 * min(whole), got  # 4 where no host is slow
