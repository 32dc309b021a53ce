#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`horarun k8s` in a cluster of two nodes, next to kubectl, in one run.  Called by ./run --engine kubernetes.

k8s          a whole job: two pods are made, /bin/true runs in both, they are deleted
kubectl      the same by hand: a Job of two pods that run /bin/true; create, wait for it, delete
horarun      /bin/true in both of two pods that run already, by --rsh 'kubectl exec -i'
exec         `kubectl exec POD -- /bin/true` in both, at the same time
in, out      32 MiB to the standard input of one rank in these pods, 20 MB from its standard output; the same with
             `kubectl exec -i` alone
leaving      from `kill -9` of `horarun k8s` to the end of its ranks, of its pods, and of its Job
"""

import os
import shutil
import sys
import tempfile
import time

import bench_engines
from bench_gridengine import side_by_side

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support", "engines"))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "integration"))
import kubernetes

import conftest
import jobs

NODES = 2
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - {{name: main, image: "{image}", command: [{command}]}}
"""


def by_hand(cluster):
    """A Job that does its work without horarun."""
    began = time.perf_counter()
    cluster.kubectl("create", "-f", "-", input=JOB.format(name="hand", image=kubernetes.IMAGE, command="/bin/true"))
    cluster.kubectl("wait", "--for=condition=complete", "job/hand", "--timeout=60s")
    cluster.kubectl("delete", "job", "hand", "--wait=false")
    return time.perf_counter() - began


def standing_pods(cluster):
    cluster.kubectl(
        "create", "-f", "-", input=JOB.format(name="pods", image=kubernetes.IMAGE, command="sleep, '100000'")
    )
    cluster.wait_until(
        lambda: [pod["status"]["phase"] for pod in cluster.get("pods", "-l", "job-name=pods")] == ["Running"] * 2,
        "two pods to run",
    )
    return [pod["metadata"]["name"] for pod in cluster.get("pods", "-l", "job-name=pods")]


def leaving(options, cluster, environment):
    """Seconds from kill -9 until no rank, no pod that runs, and no Job is left."""
    words = ["k8s", "--image", kubernetes.IMAGE, "--workers", "2", "-np", "2", "sh", "-c", "echo up; exec sleep 1000"]
    job = jobs.Horarun(options.build, cluster.folder).start(*words, env=environment)
    job.read_until("up", 2)
    if len(ranks_of(job.mark)) != 2:
        sys.exit("two ranks were expected")
    began = time.perf_counter()
    job.process.kill()
    job.process.wait()

    def seconds_until(condition, what):
        cluster.wait_until(condition, what)
        return time.perf_counter() - began

    ours = ("-l", "app.kubernetes.io/managed-by=horarun")
    times = (
        seconds_until(lambda: not ranks_of(job.mark), "the ranks to end"),
        seconds_until(
            lambda: all(pod["status"]["phase"] != "Running" for pod in cluster.get("pods", *ours)), "the pods to end"
        ),
        seconds_until(lambda: not cluster.get("jobs", *ours), "the Job to go"),
    )
    job.finish()
    return times


def ranks_of(mark):
    """Processes in pods that carry the job's mark; this world sees them."""
    return [process for process in jobs.processes_of(mark) if "sleep" in process.command]


def main():
    parser = bench_engines.parser_of(__doc__)
    parser.add_argument("--leaving", type=int, default=1, metavar="ROUNDS", help="each takes two minutes and a half")
    options = parser.parse_args()
    if why := kubernetes.missing():
        sys.exit(why)
    factory = conftest.HostFactory()
    folder = tempfile.mkdtemp(prefix="hora-bench.", dir="/var/tmp")
    os.chmod(folder, 0o755)
    cluster = kubernetes.Cluster(factory(NODES), folder)
    try:
        environment = {"PATH": kubernetes.PATH, "HOME": os.environ.get("HOME", "/"), "KUBECONFIG": cluster.config}
        horarun = os.path.join(options.build, "bin", "horarun")
        whole = [horarun, "k8s", "--image", kubernetes.IMAGE, "--workers", "2", "-np", "2", "/bin/true"]
        names = standing_pods(cluster)
        reach = ["--rsh", "kubectl exec -i", "-H", ",".join(f"{name}:1" for name in names)]
        contestants = {
            "k8s": lambda: bench_engines.timed(whole, environment),
            "kubectl": lambda: by_hand(cluster),
            "horarun": lambda: bench_engines.timed([horarun, *reach, "/bin/true"], environment),
            "exec": lambda: side_by_side([["kubectl", "exec", name, "--", "/bin/true"] for name in names], environment),
            **bench_engines.own_streams(options.build, environment, reach),
            **bench_engines.both_streams("exec", ["kubectl", "exec", "-i", names[0], "--"], environment),
        }
        results = {}
        if options.rounds:
            results = bench_engines.compare(contestants, options.rounds, lambda name: None)
            bench_engines.show_medians(f"Kubernetes, {NODES} nodes", results, options)
        results["leaving"] = [leaving(options, cluster, environment) for _ in range(options.leaving)]
    finally:
        cluster.close()
        factory.down()
        shutil.rmtree(folder, ignore_errors=True)
    for times in results["leaving"]:
        print("kill -9 of horarun: no rank after {:.1f} s, no pod after {:.1f} s, no Job after {:.1f} s".format(*times))
    bench_engines.write(options, "engines-kubernetes.json", results)


if __name__ == "__main__":
    main()
