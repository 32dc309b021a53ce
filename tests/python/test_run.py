# SPDX-License-Identifier: Apache-2.0
"""hora.run, horovod.run, HorovodRunner: functions on the ranks of a new job."""

import contextlib
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from support import job
from support.processes import is_alive, wait_until

pytest.importorskip("cloudpickle")
sys.path.insert(0, str(job.PACKAGES))

import hora
from hora import authenticated_server, channel, launch, launch_worker, serialization


@pytest.fixture(autouse=True)
def launcher(monkeypatch):
    for name, value in job.environment().items():
        monkeypatch.setenv(name, value)


def options():
    runtime = os.environ.get("HORA_TEST_RUNTIME")
    return ["--runtime", runtime] if runtime else []


def describe(prefix, suffix=""):
    import hora.numpy as hvd

    hvd.init()
    total = hvd.allreduce([float(hvd.rank())], op=hvd.Sum)
    return prefix + f"{hvd.rank()}/{hvd.size()}" + suffix, float(total[0])


@pytest.mark.parametrize("np", [1, 3])
def test_results_come_by_rank(np):
    results = hora.run(describe, args=("r",), kwargs={"suffix": "!"}, np=np, options=options())
    total = sum(range(np))
    assert results == [(f"r{rank}/{np}!", total) for rank in range(np)]


def test_closures_and_large_values_travel():
    data = bytes(range(256)) * 40_000
    results = hora.run(lambda: data[::-1], np=2, options=options())
    assert results == [data[::-1]] * 2


def test_the_main_script_travels_from_a_spawned_process(tmp_path):
    """There its name is not __main__: see multiprocessing's spawn and forkserver, the default since Python 3.14."""
    script = tmp_path / "script.py"
    script.write_text(
        """import concurrent.futures, multiprocessing, sys
import hora

class Point:
    def __init__(self, x):
        self.x = x

def double(point):
    return Point(point.x * 2)

def run():
    return [(type(point) is Point, point.x) for point in hora.run(double, args=(Point(3),), np=2, options=sys.argv[2:])]

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        print(pool.submit(run).result())
"""
    )
    for method in "spawn", "forkserver":
        done = subprocess.run([sys.executable, script, method, *options()], capture_output=True, text=True, timeout=120)
        assert done.stdout == "[(True, 6), (True, 6)]\n", (method, done.stderr)


def test_what_is_large_may_take_its_time(monkeypatch):
    """Both ends wait without a limit for a function, and for a result to be taken, once they know each other."""
    server = launch._ResultServer(bytes(64 << 20), everywhere=False, watcher=launch.Watcher())
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            channel.Channel(connection, server.key, is_server=False)
            assert connection.recv(1)  # of the function, most of which is yet to be sent
            (served,) = server._served
            assert served.gettimeout() is None
    finally:
        server.close()

    ours, theirs = socket.socketpair()
    waited = []

    class Link:
        def receive(self):
            waited.append(ours.gettimeout())
            return serialization.dumps((len, ("four",), {}), "a function")

        def send(self, body):
            assert body[:1] == b"R"

    ours.settimeout(30)
    monkeypatch.setattr(launch_worker, "_connect_to_caller", lambda port, key: contextlib.nullcontext((ours, Link())))
    monkeypatch.setenv("HORA_RUN_KEY", "00")
    monkeypatch.setenv("HORA_RUN_PORT", "1")
    with ours, theirs:
        assert launch_worker.work() == 0
    assert waited == [None, None]


def test_error_of_a_rank():
    def fail():
        import hora.numpy as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise KeyError("the missing thing")
        hvd.barrier()

    with pytest.raises(RuntimeError) as caught:
        hora.run(fail, np=2, options=options())
    assert "rank 1" in str(caught.value) and "the missing thing" in str(caught.value)


def test_exit_of_a_rank():
    with pytest.raises(RuntimeError, match="exit"):
        hora.run(lambda: os._exit(7), np=2, options=options())


@pytest.mark.parametrize("end", ["return", "exit", "fail"])
def test_a_child_that_the_function_forks_is_not_the_rank(end):
    def with_child():
        import hora.numpy as hvd

        hvd.init()
        child = os.fork()
        if child == 0:
            if end == "exit":
                sys.exit(3)
            if end == "fail":
                raise KeyError("the child's own")
            return "of the child"
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return hvd.rank(), code, float(hvd.allreduce([1.0], op=hvd.Sum)[0])

    code = {"return": 0, "exit": 3, "fail": 1}[end]
    assert hora.run(with_child, np=2, options=options()) == [(0, code, 2.0), (1, code, 2.0)]


@pytest.mark.parametrize("before", ["never", "earlier"])
def test_a_child_of_a_process_that_is_not_a_rank_may_join_the_job(before):
    def with_child():
        import hora.numpy as hvd

        hvd.gloo_built()  # loads the library
        if before == "earlier":
            hvd.init()
            hvd.shutdown()
        child = os.fork()
        if child == 0:
            hvd.init()
            assert float(hvd.allreduce([1.0], op=hvd.Sum)[0]) == 2.0
            hvd.shutdown()
        else:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert hora.run(with_child, np=2, options=options()) == [0, 0]


def test_the_global_set_has_no_ranks_before_init():
    def ask():
        import hora.numpy as hvd
        from hora.exceptions import NotInitializedError

        hvd.gloo_built()  # loads the library
        try:
            hvd.global_process_set.rank()
        except NotInitializedError as error:
            return str(error)

    assert "call init() first" in hora.run(ask, np=1, options=options())[0]


@pytest.mark.parametrize("call", ["rank()", "size()", "local_rank()", "allreduce(1.0)", "is_homogeneous()"])
def test_programs_recognise_the_error_before_init(call):
    def ask():
        import hora.numpy as hvd

        try:
            eval(f"hvd.{call}", {"hvd": hvd})
        except ValueError as error:
            return str(error)

    words = "Horovod has not been initialized; use hvd.init()."
    assert hora.run(ask, np=1, options=options())[0].startswith(words)


def test_a_message_that_is_not_utf8():
    def fail():
        raise FileNotFoundError("\udcff.txt")

    with pytest.raises(RuntimeError, match=r"rank 0 failed(?s:.*)FileNotFoundError: \\udcff\.txt"):
        hora.run(fail, np=1, options=options())


def test_a_function_that_closes_its_output():
    assert hora.run(lambda: sys.stdout.close() or 5, np=1, options=options()) == [5]


def test_what_cannot_be_sent():
    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot be sent"):
        hora.run(lambda: lock, np=1, options=options())
    with pytest.raises(RuntimeError, match="cannot be sent"):
        hora.run(lambda: threading.Lock(), np=1, options=options())


def test_the_launchers_reason_is_in_the_error():
    with pytest.raises(RuntimeError, match=r"(?s)exit code 127.*rank.*/nowhere/python: No such file"):
        hora.run(print, np=1, options=options(), executable="/nowhere/python")
    with pytest.raises(RuntimeError, match=r"(?s)exit code 9.*localhost exited with code 9"):
        hora.run(os._exit, args=(9,), np=1, options=options())


def test_what_is_wrong_with_the_launch_is_in_the_error():
    """A notebook does not show what the launcher prints."""
    for text, arguments in [
        (r"-H: column 3: expected the number of slots", dict(hosts="a:b:c")),
        (r"--hostfile: opening /nowhere/hosts", dict(hostfile="/nowhere/hosts")),
        (r"--start-timeout: expected a time", dict(options=["--start-timeout", "x"])),
        (r"no result from ranks \[0, 1, .*, 15\] and 8999984 more\n.*from 1 to 1000000", dict(np=9_000_000)),
    ]:
        with pytest.raises(RuntimeError, match=rf"(?s)exit code 2; .*{text}"):
            hora.run(**{"func": print, "np": 1, "options": options(), **arguments})


def test_a_function_that_clears_its_environment():
    assert hora.run(lambda: os.environ.clear() or 5, np=3, options=options()) == [5, 5, 5]


def test_what_cannot_be_called_is_refused_at_once():
    for kind, text, arguments in [
        (TypeError, "function", dict(func="main")),
        (TypeError, "args=5", dict(args=5)),
        (TypeError, "args='ab'", dict(args="ab")),
        (TypeError, "kwargs=", dict(kwargs=[1])),
        (TypeError, "options='--verbose': expected a list of words", dict(options="--verbose")),
        (TypeError, r"env\[.FOO.\]=1: expected text", dict(env={"FOO": 1})),
        (ValueError, "np=0", dict(np=0)),
        (ValueError, "np=-2", dict(np=-2)),
        (ValueError, "np='2'", dict(np="2")),
        (TypeError, r"hosts=\['a:1'\]: expected text, such as a:2,b:2", dict(hosts=["a:1"])),
    ]:
        with pytest.raises(kind, match=text):
            hora.run(**{"func": print, "np": 1, "options": ["--never-asked"], **arguments})


def test_no_number_of_ranks_means_all_slots(tmp_path):
    hostfile = tmp_path / "hosts"
    hostfile.write_text("localhost slots=3\n")
    allocation = {"PBS_JOBID": "7", "PBS_NODEFILE": str(tmp_path / "nodes")}
    (tmp_path / "nodes").write_text("localhost\n" * 4)
    for count, arguments in [
        (2, dict(hosts="localhost:2")),
        (3, dict(hostfile=str(hostfile))),
        (4, dict(env=allocation)),
    ]:
        results = hora.run(describe, args=("r",), np=None, options=options(), **arguments)
        assert [text for text, _ in results] == [f"r{rank}/{count}" for rank in range(count)]
    with pytest.raises(ValueError, match=r"np=None: .*-np is missing"):
        hora.run(print, np=None, options=options())


def test_what_cannot_be_imported(tmp_path, monkeypatch):
    (tmp_path / "only_the_caller_has_this.py").write_text("def f():\n    return 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_the_caller_has_this

    assert hora.run(only_the_caller_has_this.f, np=1, options=options()) == [5]
    (tmp_path / "only_the_caller_has_this.py").unlink()
    with pytest.raises(RuntimeError, match="only_the_caller_has_this"):
        hora.run(only_the_caller_has_this.f, np=1, options=options())


def rank_that_was_given():
    """Without the runtime: what the starter of the process says."""
    return next(os.environ[name] for name in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ)


def sum_or_fail(failing):
    import hora.numpy as hvd

    hvd.init()
    if hvd.rank() == failing:
        raise ValueError(f"rank {failing} is wrong")
    return hvd.rank(), float(hvd.allreduce([1.0], op=hvd.Sum)[0])


@pytest.mark.parametrize("controller", ["--gloo", "--mpi", "--pmix"])
@pytest.mark.parametrize("where", [{}, {"hosts": "localhost:2"}], ids=["here", "hosts"])
def test_every_way_to_start_ranks(controller, where):
    if controller == "--mpi" and shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    words = ["--pmi", "pmix"] if controller == "--pmix" else [controller]
    assert hora.run(rank_that_was_given, np=2, options=[*options(), *words], **where) == ["0", "1"]
    assert hora.run(sum_or_fail, args=(-1,), np=2, options=[*options(), *words], **where) == [(0, 2.0), (1, 2.0)]
    with pytest.raises(RuntimeError, match="rank 1 is wrong"):
        hora.run(sum_or_fail, args=(1,), np=2, options=[*options(), *words], **where)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_horovod_run_by_mpirun():
    import horovod

    assert [text for text, _ in horovod.run(describe, args=("x",), num_proc=1, use_mpi=True)] == ["x0/1"]


def test_horovod_run():
    import horovod

    results = horovod.run(describe, args=("x",), num_proc=2, use_gloo=True)
    assert [text for text, _ in results] == ["x0/2", "x1/2"]
    with pytest.deprecated_call():
        assert len(horovod.run(describe, args=("x",), np=1)) == 1
    with pytest.raises(ValueError):
        horovod.run(describe, hosts="a:1", hostfile="f")
    with pytest.raises(ValueError):
        horovod.run(describe, use_gloo=True, use_mpi=True)
    with pytest.raises(ValueError):
        horovod.run(describe, num_proc=2, np=1)
    with pytest.raises(ValueError, match=r"^num_proc=0: "):
        horovod.run(describe, num_proc=0)


def test_a_failure_of_horovod_run_has_the_words_of_horovods():
    import horovod

    expected = "Horovod detected that one or more processes exited with non-zero status"
    with pytest.raises(RuntimeError, match=rf"(?s)^{expected}: rank 1 failed:.*rank 1 is wrong") as caught:
        horovod.run(sum_or_fail, args=(1,), num_proc=2)
    assert type(caught.value) is RuntimeError
    assert caught.value.rank == 1 and isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(RuntimeError, match=rf"^{expected}: the job failed with exit code 9"):
        horovod.run(os._exit, args=(9,), num_proc=1)
    with pytest.raises(RuntimeError) as caught:
        hora.run(sum_or_fail, args=(1,), np=2, options=options())
    assert expected not in str(caught.value)


class BadBatch(Exception):
    """Cannot be made again from its text, as pickle does."""

    def __init__(self, shard, label):
        super().__init__(f"shard {shard}: label {label}")
        self.shard = shard


def raise_on_rank_1(error):
    if os.environ["HOROVOD_RANK"] == "1":
        raise error
    time.sleep(600)


def test_the_original_exception_is_the_cause():
    with pytest.raises(launch.JobFailed) as caught:
        hora.run(raise_on_rank_1, (FileNotFoundError(2, "No such file", "data.csv"),), np=2, options=options())
    cause = caught.value.__cause__
    assert caught.value.rank == 1 and type(cause) is FileNotFoundError and cause.filename == "data.csv"
    text = str(caught.value)
    assert text.startswith("rank 1 failed:\nTraceback (most recent call last):\n") and text.count("Traceback") == 1
    assert "launch_worker" not in text and "hora/forked" not in text, "the caller's own frames only"
    with pytest.raises(launch.JobFailed, match="shard 3: label -1") as caught:
        hora.run(lambda: raise_on_rank_1(BadBatch(3, -1)), np=2, options=options())
    assert caught.value.rank == 1 and "shard 3: label -1" in str(caught.value.__cause__)
    with pytest.raises(launch.JobFailed) as caught:
        hora.run(os._exit, (9,), np=1, options=options())
    assert caught.value.rank is None and caught.value.__cause__ is None


CELLS = """
import hora, traceback
class Wrong(ValueError):
    pass
def check(label):
    raise Wrong(f"label {label}")  # here
def train(n):
    check(-n)
try:
    hora.run(train, (3,), np=2, options=OPTIONS)
except Exception as error:
    assert type(error.__cause__) is Wrong, "the very class of the notebook"
    traceback.print_exc()
"""


@pytest.mark.parametrize("through", ["linecache", "IPython"])
def test_tracebacks_have_the_lines_of_notebook_cells(tmp_path, through):
    """By real IPython where it is installed; and by what it leaves in linecache."""
    if through == "IPython":
        pytest.importorskip("IPython")
        run = "from IPython.core.interactiveshell import InteractiveShell as S; S.instance().run_cell(text)"
    else:
        run = (
            "import linecache; name = '<cell 7>'; "
            "linecache.cache[name] = (len(text), None, text.splitlines(True), name); exec(compile(text, name, 'exec'))"
        )
    script = tmp_path / "session.py"
    script.write_text(f"text = {CELLS.replace('OPTIONS', repr(options()))!r}\n{run}\n")
    environment = {**os.environ, "PYTHONPATH": str(job.PACKAGES), "IPYTHONDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, env=environment)
    said = done.stdout + done.stderr
    assert 'raise Wrong(f"label {label}")  # here' in said and "check(-n)" in said, said
    assert said.count("label -3\n") == 2, "the exception, and the traceback of its rank"


def learn(steps):
    """Adds up the number of ranks of each step; the second rank is killed on the way."""
    import hora.numpy as hvd
    from hora import elastic

    @elastic.run
    def train(state):
        while state.step < steps:
            state.total += float(hvd.allreduce([1.0], op=hvd.Sum, name="step")[0])
            state.step += 1
            if state.step == 3 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            state.commit()
        return state.total

    hvd.init()
    return train(elastic.SimpleState(step=0, total=0.0))


def test_an_elastic_function_that_loses_a_rank():
    import horovod

    (total,) = horovod.run(learn, args=(6,), num_proc=2, min_num_proc=1, hosts="localhost:1,127.0.0.1:1")
    assert total in (9.0, 8.0)  # the third step, in which rank 1 dies, may not have come to its end for rank 0


def test_nothing_is_left_in_the_caller():
    hora.run(lambda: None, np=2, options=options())
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        hora.run(lambda: None, np=2, options=options())
        with pytest.raises(RuntimeError):
            hora.run(lambda: os._exit(3), np=2, options=options())
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before


def test_interrupt_ends_the_job(tmp_path):
    """Ctrl-C while the ranks are at work: they end, and the caller gets KeyboardInterrupt."""
    started = tmp_path / "started"
    program = (
        "import os, signal, sys, time, pathlib, hora\n"
        # A shell that puts the tests into the background makes them ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def work(folder):\n"
        "    (pathlib.Path(folder) / f'{os.getpid()}').touch()\n"
        "    time.sleep(600)\n"
        "try:\n"
        "    hora.run(work, args=(sys.argv[1],), np=2, options=sys.argv[2:])\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(42)\n"
    )
    started.mkdir()
    caller = subprocess.Popen([sys.executable, "-c", program, started, *options()], start_new_session=True)
    try:
        wait_until(lambda: len(list(started.iterdir())) == 2 or caller.poll() is not None, "both ranks are at work", 60)
        os.kill(caller.pid, signal.SIGINT)
        assert caller.wait(60) == 42
        wait_until(lambda: not any(is_alive(int(path.name)) for path in started.iterdir()), "the ranks have ended", 30)
    finally:
        if caller.poll() is None:
            os.killpg(caller.pid, signal.SIGKILL)
            caller.wait(30)


def test_a_killed_caller_leaves_nothing(tmp_path):
    """SIGKILL to the process that called run(): launcher and ranks end, and no file stays."""
    temporary, started = tmp_path / "tmp", tmp_path / "started"
    temporary.mkdir()
    started.mkdir()
    program = (
        "import os, pathlib, sys, time, hora\n"
        "def work(folder):\n"
        "    (pathlib.Path(folder) / f'{os.getpid()}').touch()\n"
        "    time.sleep(600)\n"
        "hora.run(work, args=(sys.argv[1],), np=2, options=sys.argv[2:])\n"
    )
    mark = f"of-{os.getpid()}-{time.monotonic_ns()}"
    caller = subprocess.Popen(
        [sys.executable, "-c", program, started, "--grace", "1s", *options()],
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary), "HORA_TEST_MARK": mark},
    )
    try:
        wait_until(lambda: len(list(started.iterdir())) == 2 or caller.poll() is not None, "both ranks are at work", 60)
        assert caller.poll() is None
        caller.kill()
        caller.wait(30)
        wait_until(lambda: not marked(mark), "launcher, agent and ranks have ended", 60)
        assert list(temporary.iterdir()) == []
    finally:
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if caller.poll() is None:
            caller.kill()
            caller.wait(30)


def marked(mark):
    """The living processes that have the mark in their environment."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
            if mark.encode() in file.read() and is_alive(int(entry)):
                found.append(int(entry))
    return found


def test_whose_hosts_are_found_by_the_launcher(monkeypatch, tmp_path):
    """Without hosts= the ranks need not be here: configuration and batch systems name hosts, too."""
    monkeypatch.chdir(tmp_path)

    def here(**variables):
        return launch._runs_here(["-np", "2", "--mpi"], None, None, {**os.environ, **variables})

    assert here()
    assert here(HORARUN_HOSTS="localhost:1,127.0.0.1:1")
    assert not here(HORARUN_HOSTS="elsewhere:2")
    assert not here(HORARUN_HOSTS="localhost:1,elsewhere:1")
    assert not here(HORARUN_HOST_DISCOVERY_SCRIPT="/bin/true")
    (tmp_path / "hora.yaml").write_text("horarun:\n  hosts: elsewhere:2\n")
    assert not here()


@pytest.mark.parametrize("module", ["sparkdl", "hora.runner"])
def test_horovod_runner(module):
    HorovodRunner = importlib.import_module(module).HorovodRunner

    def main(scale):
        import hora.numpy as hvd

        hvd.init()
        return float(hvd.allreduce([1.0], op=hvd.Sum)[0]) * scale

    assert HorovodRunner(np=-2).run(main, scale=10) == 20.0
    with pytest.raises(ValueError):
        HorovodRunner(np=0)


def test_python_of_the_ranks(tmp_path):
    python = tmp_path / "my-python"
    python.write_text(f'#!/bin/sh\nMARK=seen exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert hora.run(lambda: os.environ.get("MARK"), np=1, executable=str(python), options=options()) == ["seen"]


def test_command_line_by_module():
    done = subprocess.run([sys.executable, "-m", "horovod.runner.launch", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip()


def test_a_job_within_a_job_runs_every_sitecustomize_once(tmp_path):
    """Two copies of ours in the path, and one of the user's behind them."""
    folders = [tmp_path / name for name in ("ours", "copy", "theirs")]
    for folder in folders:
        folder.mkdir()
    for folder in folders[:2]:
        shutil.copy(job.PACKAGES / "sitecustomize.py", folder)
    (folders[2] / "sitecustomize.py").write_text("print('theirs')")
    done = subprocess.run(
        [sys.executable, "-c", "print('program')"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
    )
    assert (done.stdout, done.stderr) == ("theirs\nprogram\n", ""), done


def test_outsiders_get_nothing():
    """Who has no key, or another one, is refused before anything is unpickled."""
    server = launch._ResultServer(b"payload", everywhere=False, watcher=launch.Watcher())
    try:
        for key in (b"", b"x" * 32):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection, pytest.raises(
                (channel.ChannelError, OSError)
            ):
                channel.Channel(connection, key, is_server=False, timeout=10)
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            # A long message: refused as soon as it is announced, and not waited for (30 s).
            connection.sendall(bytes(32) + (1 << 20).to_bytes(8, "little"))
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            link = channel.Channel(connection, server.key, is_server=False)
            assert link.receive() == b"payload"
            link.send(launch.encode_outcome(b"E", 0, b"text"))
            assert link.receive() == b"seen"
        assert [(rank, kind) for rank, (kind, _) in server.outcomes.items()] == [(0, "error")]
    finally:
        server.close()


@pytest.mark.parametrize("files", [None, 64])
def test_a_crowd_of_silent_clients_keeps_no_rank_out(files):
    """Neither more connections than the server keeps, nor as many as there are descriptors."""
    script = f"""if True:
        import resource, socket, sys
        sys.path.insert(0, {os.path.dirname(os.path.dirname(launch.__file__))!r})
        from hora import channel, launch
        server = launch._ResultServer(b"payload", everywhere=False, watcher=launch.Watcher())
        print(server.port, server.key.hex(), flush=True)
        if {files}:
            resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
        sys.stdin.read()
        assert [(rank, kind) for rank, (kind, _) in server.outcomes.items()] == [(0, "error")], server.outcomes
        server.close()
        print("closed", flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        port, key = server.stdout.readline().split()
        crowd = [
            socket.create_connection(("127.0.0.1", int(port)), timeout=60)
            for _ in range(authenticated_server._MAX_UNAUTHENTICATED + 100)
        ]
        with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as connection:
            link = channel.Channel(connection, bytes.fromhex(key), is_server=False, timeout=60)
            assert link.receive() == b"payload"
            link.send(launch.encode_outcome(b"E", 0, b"text"))
            assert link.receive() == b"seen"
        # The first of them was sent away: its nonce, then the end, long before its time of 30 s is over.
        crowd[0].settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            while crowd[0].recv(4096):
                pass
        server.stdin.close()
        assert server.stdout.read() == "closed\n"
        assert server.wait(60) == 0
        for each in crowd:
            each.close()


@pytest.mark.parametrize("attack", ["again", "changed", "another order", "sent back"])
def test_messages_cannot_be_replayed_or_changed(attack):
    left, right = socket.socketpair()
    key = b"k" * 32
    sides = {}
    thread = threading.Thread(target=lambda: sides.update(server=channel.Channel(left, key, is_server=True)))
    thread.start()
    worker = channel.Channel(right, key, is_server=False)
    thread.join()
    server = sides["server"]
    first, second = said_by(worker, b"first"), said_by(worker, b"second")
    if attack == "again":
        right.sendall(first)
        assert server.receive() == b"first"
    right.sendall(
        {"again": first, "changed": first[:-1] + b"T", "another order": second, "sent back": said_by(server, b"first")}[
            attack
        ]
    )
    with pytest.raises(channel.ChannelError):
        server.receive()
    left.close()
    right.close()


def said_by(side, body):
    """The bytes that it would send, which are not sent."""

    class Recorder:
        sent = b""

        def sendall(self, data):
            self.sent += data

    connection, side._socket = side._socket, Recorder()
    side.send(body)
    said, side._socket = side._socket.sent, connection
    return said
