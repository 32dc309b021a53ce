# SPDX-License-Identifier: Apache-2.0
"""`horarun k8s` on a real API server and real kubelets (tests/support/engines/kubernetes.py). The pods have a network
of their own, to which this machine has no way."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import jobs

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support", "engines"))
import kubernetes

ENGINE = kubernetes
HOSTS = 2


@pytest.fixture
def k8s(horarun, cluster):
    """Starts or runs `horarun k8s` as the administrator."""

    class Runner:
        environment = {"KUBECONFIG": cluster.config}

        def words(self, arguments, image):
            return ["k8s", *(["--image", image] if image else []), *map(str, arguments)]

        def start(self, *arguments, image=kubernetes.IMAGE, **options):
            return horarun.start(*self.words(arguments, image), env=self.environment, **options)

        def run(self, *arguments, image=kubernetes.IMAGE, input=None, **options):
            return horarun.run(*self.words(arguments, image), env=self.environment, input=input, **options)

    return Runner()


def jobs_of(cluster):
    return cluster.kubectl("get", "jobs", "-o", "name").split()


def pods_of(cluster):
    return [pod["metadata"]["name"] for pod in cluster.get("pods") if "deletionTimestamp" not in pod["metadata"]]


def expect_nothing_left(cluster, timeout=150):
    cluster.wait_until(lambda: not cluster.left(), f"jobs and pods to go: {cluster.left()}", timeout)


def read_messages(job, text, timeout=60):
    """Reads what horarun says until `text` was seen."""
    seen = b""
    os.set_blocking(job.process.stderr.fileno(), False)
    deadline = time.monotonic() + timeout
    while text.encode() not in seen:
        assert job.process.poll() is None and time.monotonic() < deadline, f"{text!r} was not said:\n{seen.decode()}"
        seen += job.process.stderr.read() or b""
        time.sleep(0.01)
    os.set_blocking(job.process.stderr.fileno(), True)
    return seen.decode()


def test_a_job_in_pods(k8s, cluster):
    script = "echo $HOROVOD_RANK of $HOROVOD_SIZE in $PWD, $OF_THE_IMAGE, $HOME, $WISH"
    done = k8s.run("--workers", 2, "-np", 3, "-x", "WISH=granted", "sh", "-c", script).expect(0)
    assert done.ranks() == {r: [f"{r} of 3 in /work, yes, /root, granted"] for r in range(3)}, done
    expect_nothing_left(cluster)


def test_the_collectives_of_ranks_that_have_no_way_here(k8s, cluster):
    done = k8s.run("--workers", 4, "-np", 6, "--rendezvous-tls", "--smoke").expect(0)
    assert "all ok" in done.text, done


def test_exit_code_and_shipped_file(k8s, cluster, tmp_path):
    (tmp_path / "task").write_text("#!/bin/sh\n[ $HOROVOD_RANK = 0 ] || exit 7\nsleep 60\n")
    (tmp_path / "task").chmod(0o755)
    k8s.run("--workers", 2, "-np", 2, "--ship", tmp_path / "task", "./task").expect(7)
    expect_nothing_left(cluster)


def test_bytes_through_the_api_server(k8s, tmp_path):
    """32 MiB in, 20 MB out."""
    data = os.urandom(32 << 20)
    rank_0 = "[ $HOROVOD_RANK = 0 ] || exit 0; "
    done = k8s.run("--workers", 2, "-np", 2, "sh", "-c", rank_0 + "sha256sum", input=data).expect(0)
    assert hashlib.sha256(data).hexdigest() in done.text, done
    script = rank_0 + "head -c 20000000 /dev/urandom >/tmp/o; echo >>/tmp/o; cat /tmp/o; sha256sum /tmp/o >&2"
    done = k8s.run("--workers", 2, "-np", 2, "--no-prefix-output", "sh", "-c", script).expect(0)
    assert len(done.out) == 20_000_001
    assert hashlib.sha256(done.out).hexdigest() in done.messages


def test_no_secret_where_others_look(k8s, cluster):
    secret = "s3cr3t-of-the-user"
    job = k8s.start("--workers", 2, "-np", 2, "-x", f"HORA_WISH={secret}", "sh", "-c", "echo $HORA_WISH; exec sleep 60")
    job.read_until(secret, times=2)
    for listing in ("jobs", "pods", "events"):
        assert secret not in cluster.kubectl("get", listing, "-o", "json")
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                assert entry == str(job.pid) or secret.encode() not in file.read()
        except OSError:
            continue
    job.send_signal(signal.SIGINT)
    assert job.finish().code == 130
    expect_nothing_left(cluster)


def test_a_launcher_that_is_killed_leaves_nothing_for_long(k8s, cluster):
    job = k8s.start("--workers", 2, "-np", 2, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", times=2)
    job.process.kill()
    job.finish()
    cluster.wait_until(lambda: all(job["status"].get("failed") for job in cluster.get("jobs")), "the pods to end", 90)
    expect_nothing_left(cluster, 120)


def test_pods_that_are_waited_for_end_with_the_time_limit(k8s, cluster):
    """Killed while it waits for pods that fit nowhere."""
    job = k8s.start("--workers", 2, "-np", 2, "--cpus-per-worker", 1000, "--start-timeout", "40", "true")
    read_messages(job, "Unschedulable: 0/2 nodes are available")
    (made,) = cluster.get("jobs")
    assert made["spec"]["activeDeadlineSeconds"] == 100
    job.process.kill()
    job.finish()
    cluster.kubectl(  # not to wait for a minute
        "patch", "job", made["metadata"]["name"], "--type=merge", "-p", '{"spec":{"activeDeadlineSeconds":1}}'
    )
    expect_nothing_left(cluster, 120)


def test_pods_that_do_not_come(k8s, cluster):
    done = k8s.run("--workers", 2, "-np", 2, "--cpus-per-worker", 1000, "--start-timeout", "6", "true").expect(124)
    assert "waited 6s for pods: 0 of 2 pods run" in done.messages, done
    assert "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu. [E_START_TIMEOUT]" in done.messages, done
    expect_nothing_left(cluster)


def test_interrupted_while_it_waits(k8s, cluster):
    job = k8s.start("--workers", 1, "-np", 1, "--cpus-per-worker", 1000, "true")
    read_messages(job, "waiting for pods")
    job.send_signal(signal.SIGINT)
    assert job.finish(timeout=10).code == 130
    expect_nothing_left(cluster)


def test_an_image_that_is_not_there(k8s, cluster):
    done = k8s.run("--workers", 1, "-np", 1, "true", image="registry.invalid/none:1").expect(125)
    assert "cannot be started" in done.messages and "[E_KUBERNETES]" in done.messages, done
    assert "ErrImagePull" in done.messages or "ImagePullBackOff" in done.messages, done
    expect_nothing_left(cluster)


def test_a_quota_that_is_used_up(k8s, cluster):
    cluster.kubectl("create", "quota", "few", "--hard=pods=1")
    try:
        done = k8s.run("--workers", 2, "-np", 2, "--start-timeout", "8", "true").expect(124)
        assert "exceeded quota: few" in done.messages, done
    finally:
        cluster.kubectl("delete", "quota", "few")
    expect_nothing_left(cluster)


def test_a_namespace_that_is_forbidden(k8s, cluster):
    k8s.environment = {"KUBECONFIG": cluster.outsiders_config}
    done = k8s.run("--workers", 1, "-np", 1, "--namespace", "kube-system", "true").expect(125)
    assert 'cannot create resource "jobs"' in done.messages and "[E_KUBERNETES]" in done.messages, done


def test_no_kubectl(k8s):
    done = k8s.run("--workers", 1, "-np", 1, "--kubectl", "no-such-kubectl", "true").expect(125)
    assert "no-such-kubectl" in done.messages, done


def test_a_pod_that_is_deleted(k8s, cluster):
    # It gets SIGTERM, and goes on until it is killed: had it ended with 0 by itself, the others would go on.
    deaf = "trap 'echo term' TERM; echo up; while :; do sleep 1000 & wait; done"
    job = k8s.start("--workers", 2, "-np", 2, "--grace", "2s", "sh", "-c", deaf)
    job.read_until("up", times=2)
    victim = pods_of(cluster)[0]
    cluster.kubectl("delete", "pod", victim, "--wait=false")
    done = job.finish(timeout=90).expect(125)
    assert b"term" in done.out, done  # ranks learn of it
    expect_engine_failure(done, victim, "it (is being|was) deleted")
    expect_nothing_left(cluster, 90)


def expect_engine_failure(done, pod, words):
    """E_ENGINE, which names the pod before all others, and has Kubernetes' words."""
    expected_text = rf"Kubernetes has ended the job: \d of 2 pods run; {pod}( on node\d)?: {words}.*\[E_ENGINE\]"
    assert re.search(expected_text, done.messages), done


def test_a_pod_whose_program_ends_on_request(k8s, cluster):
    """By a code of its own, as one does that has saved a checkpoint."""
    script = "trap 'exit 3' TERM; echo up; while :; do sleep 1000 & wait; done"
    job = k8s.start("--workers", 2, "-np", 2, "--grace", "2s", "sh", "-c", script)
    job.read_until("up", times=2)
    victim = pods_of(cluster)[1]
    cluster.kubectl("delete", "pod", victim, "--wait=false")
    done = job.finish(timeout=90).expect(125)
    expect_engine_failure(done, victim, "it (is being|was) deleted")


def test_a_pod_that_is_evicted_through_the_api(k8s, cluster):
    """What `kubectl drain` does."""
    job = k8s.start("--workers", 2, "-np", 2, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", times=2)
    victim = pods_of(cluster)[0]
    cluster.evict(victim)
    done = job.finish(timeout=90).expect(125)
    expect_engine_failure(done, victim, "it (is being|was) deleted")
    expect_nothing_left(cluster, 90)


def test_a_job_that_is_deleted(k8s, cluster):
    job = k8s.start("--workers", 2, "-np", 2, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", times=2)
    cluster.kubectl("delete", *jobs_of(cluster), "--wait=false")
    done = job.finish(timeout=90).expect(125)
    expect_engine_failure(done, "hora-[-a-z0-9]+", "it (is being|was) deleted")
    expect_nothing_left(cluster, 90)


def test_ranks_that_fail_by_themselves_are_not_reported_as_kubernetes(k8s, cluster):
    """One that is killed while its pod goes on, and one whose code looks like a signal's."""
    done = k8s.run("--workers", 2, "-np", 2, "sh", "-c", "kill -KILL $$").expect(137)
    assert "E_ENGINE" not in done.messages, done
    done = k8s.run("--workers", 2, "-np", 2, "sh", "-c", "exit 143").expect(143)
    assert "E_ENGINE" not in done.messages, done


def test_a_pod_that_is_evicted(k8s, cluster):
    """For more in /dev/shm than --shm allows: what a kubelet evicts for by itself."""
    script = "echo up; [ $HOROVOD_RANK = 1 ] || head -c 30000000 /dev/zero >/dev/shm/x; exec sleep 1000"
    done = k8s.run("--workers", 2, "-np", 2, "--shm", "10Mi", "sh", "-c", script, timeout=150).expect(125)
    expect_engine_failure(done, "hora-[-a-z0-9]+", "Evicted: Usage of EmptyDir volume")
    expect_nothing_left(cluster, 90)


def test_a_manifest_of_the_users_own(k8s, cluster, tmp_path):
    printed = k8s.run("--workers", 2, "--dry-run", "true").expect(0).text
    file = tmp_path / "job.yaml"
    file.write_text(printed.replace("generateName: hora-", "generateName: mine-"))
    done = k8s.run("--manifest", file, "-np", 2, "sh", "-c", "hostname", image=None).expect(0)
    assert all(lines[0].startswith("mine-") for lines in done.ranks().values()), done
    expect_nothing_left(cluster)


def test_restarts_in_the_same_pods(k8s, cluster):
    script = "[ $HORA_RESTART = 1 ] || exit 3; echo $(hostname)"
    k8s.run("--workers", 2, "-np", 2, "--restarts", 1, "--restart-delay", "1s", "sh", "-c", script).expect(0)
    expect_nothing_left(cluster)


def test_what_a_report_says(k8s, tmp_path):
    report = tmp_path / "report.json"
    k8s.run("--workers", 2, "-np", 2, "--report", report, "true").expect(0)
    assert "Kubernetes job hora-" in json.dumps(json.loads(report.read_text()))


@pytest.fixture
def a_way_here(cluster):
    """Pods reach this machine, as they do one another."""
    with cluster.way_for_pods():
        yield


def test_pods_that_dial(k8s, cluster, a_way_here):
    """No kubectl runs for them any more, and 32 MiB in and 20 MB out arrive whole."""
    data = os.urandom(32 << 20)
    script = (
        "[ $HOROVOD_RANK = 0 ] || exec sleep 1; sha256sum >&2; "
        "head -c 20000000 /dev/urandom >/tmp/o; echo >>/tmp/o; cat /tmp/o; sha256sum /tmp/o >&2"
    )
    words = ("--workers", 2, "-np", 2, "--dial", "yes", "--no-prefix-output", "sh", "-c", script)
    done = k8s.run(*words, input=data).expect(0)
    assert "2 slots in 2 pods; agents start by kubectl exec, and dial back" in done.messages, done.messages
    assert "not all pods dial" not in done.messages, done.messages
    assert hashlib.sha256(data).hexdigest() in done.messages, done.messages
    assert len(done.out) == 20_000_001
    assert hashlib.sha256(done.out).hexdigest() in done.messages
    expect_nothing_left(cluster)


def test_the_collectives_of_pods_that_dial(k8s, cluster, a_way_here):
    done = k8s.run("--workers", 4, "-np", 6, "--dial", "yes", "--smoke").expect(0)
    assert "all ok" in done.text and "not all pods dial" not in done.messages, done


def test_pods_that_dial_outlive_the_api_server(k8s, cluster, a_way_here):
    script = "echo up; while [ ! -e /tmp/end ]; do sleep 1; done; echo done"
    job = k8s.start("--workers", 2, "-np", 2, "--dial", "yes", "sh", "-c", script)
    job.read_until("up", times=2)
    cluster.stop("kube-apiserver")
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            job.process.wait(20)
    finally:
        cluster.start_again("kube-apiserver")
    for pod in pods_of(cluster):
        cluster.wait_until(
            lambda pod=pod: "ok" in cluster.kubectl("exec", pod, "--", "sh", "-c", ">/tmp/end; echo ok", check=False),
            "a command in a pod",
        )
    done = job.finish(timeout=90).expect(0)
    assert done.out.count(b"done") == 2, done
    expect_nothing_left(cluster)


def test_streams_through_the_api_server_end_with_it(k8s, cluster):
    """At once and by name, and the ranks with them."""
    job = k8s.start("--workers", 2, "-np", 2, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", times=2)
    assert len(ranks_of(job)) == 2
    cluster.stop("kube-apiserver")
    try:
        jobs.wait_until(lambda: not ranks_of(job), "the ranks to end", 90)
    finally:
        cluster.start_again("kube-apiserver")
    done = job.finish(timeout=90).expect(125)
    assert "[E_HOST_LOST]" in done.messages, done
    expect_nothing_left(cluster, 200)


def ranks_of(job):
    return [process for process in job.survivors() if "sleep" in process.command]


def test_pods_that_have_no_way_here_are_reached_through_the_api_server(k8s, cluster):
    done = k8s.run("--workers", 2, "-np", 2, "--dial", "yes", "sh", "-c", "echo $HOROVOD_RANK").expect(0)
    expected_text = (
        r"not all pods dial this machine \(host hora-.*: no launcher answers: .*\); the others are reached by kubectl"
    )
    assert re.search(expected_text, done.messages), done
    assert done.ranks() == {0: ["0"], 1: ["1"]}, done


def test_pods_end_with_a_launcher_that_they_have_dialled(k8s, cluster, a_way_here):
    job = k8s.start("--workers", 2, "-np", 2, "--dial", "yes", "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", times=2)
    assert len(ranks_of(job)) == 2
    job.process.kill()
    jobs.wait_until(lambda: not ranks_of(job), "the ranks to end", 30)
    job.finish()
    expect_nothing_left(cluster, 200)


def test_a_node_that_is_lost(k8s, cluster, hosts):
    """The last test: its hosts are of no use to others."""
    job = k8s.start("--workers", 2, "-np", 2, "sh", "-c", "echo $(hostname) up; exec sleep 1000")
    job.read_until("up", times=2)
    lost = cluster.get("pods")[0]["spec"]["nodeName"]
    cluster.lost.add(cluster.hosts.names.index(lost) + 1)
    cluster.hosts.act("crash", cluster.hosts.names.index(lost) + 1)
    done = job.finish(timeout=90).expect(125)
    assert "E_HOST_LOST" in done.messages, done
