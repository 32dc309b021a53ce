# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes over the test hosts: etcd, API server, controllers and scheduler on this machine, containerd and a
kubelet on each host, and a network of the pods' own that this machine has no way to.

    cluster = kubernetes.Cluster(hosts, folder)     # `folder` has the same content on every host
    cluster.kubectl("get", "nodes")                  # as the administrator; cluster.config for KUBECONFIG
    cluster.close()

The servers are those of tests/support/engines/build-kubernetes. The keys are the test's own, and so are the hosts."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time

PROGRAMS = ("etcd", "containerd", "ctr", "runc", "kubectl", "busybox")
CNI = "/usr/lib/cni"
IMAGE = "local.test/box:1"
TIMEOUT_S = 180.0
ADMINISTRATOR, OUTSIDER = "administrators-token", "outsiders-token"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
APPLETS = (
    "sh head mkdir chmod mv rm wc cat id uname sleep hostname ls ps env gzip gunzip sha256sum seq tail true false echo "
    "kill dd grep ln sort date expr touch test printf tr"
)
FOLDERS = "bin tmp root work etc proc sys dev lib64 lib lib/x86_64-linux-gnu"
GLIBC = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")

CONTAINERD = """\
version = 2
root = "/run/k/root"
state = "/run/k/state"
[grpc]
  address = "/run/k/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "/run/k/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""

KUBELET = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "failSwapOn": False,
    "evictionHard": {"memory.available": "1Mi"},
    "imageGCHighThresholdPercent": 100,
    "readOnlyPort": 0,
    "hairpinMode": "none",
}


def servers():
    """The folder with the servers."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("HORA_KUBERNETES") or os.path.join(cache, "hora-test", "kubernetes")


def missing():
    """What this machine lacks, as a sentence; None: nothing."""
    if not os.access(os.path.join(servers(), "kubelet"), os.X_OK):
        return f"no Kubernetes in {servers()} (tests/support/engines/build-kubernetes makes it)"
    for name in PROGRAMS:
        if shutil.which(name, path=PATH) is None:
            return f"{name} is not installed (apt-get install etcd-server containerd runc busybox-static kubectl)"
    if not os.path.exists(os.path.join(CNI, "bridge")):
        return f"no {CNI}/bridge (apt-get install containernetworking-plugins)"
    return None


def make_image(path):
    """A shell, some programs, and a C library for the runtime."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:

        def add(name, **fields):
            entry = tarfile.TarInfo(name)
            for field, value in fields.items():
                setattr(entry, field, value)
            return entry

        for folder in FOLDERS.split():
            tar.addfile(add(folder, type=tarfile.DIRTYPE, mode=0o1777 if folder == "tmp" else 0o755))
        tar.add(os.path.realpath("/bin/busybox"), "bin/busybox")
        for applet in APPLETS.split():
            tar.addfile(add(f"bin/{applet}", type=tarfile.SYMTYPE, linkname="busybox"))
        for library in GLIBC:
            source = f"/lib/x86_64-linux-gnu/{library}"
            folder = "lib64" if library.startswith("ld-") else "lib/x86_64-linux-gnu"
            tar.add(os.path.realpath(source), f"{folder}/{library}")
        users = b"root:x:0:0:root:/root:/bin/sh\n"
        tar.addfile(add("etc/passwd", size=len(users)), io.BytesIO(users))
    blob = layer.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        # The entry point makes it fit for the container that holds a pod's network.
        "config": {
            "Entrypoint": ["/bin/sleep", "1000000"],
            "Env": ["PATH=/bin", "HOME=/root", "OF_THE_IMAGE=yes"],
            "WorkingDir": "/work",
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(blob).hexdigest()]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        for name, content in (
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", blob),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


class Cluster:
    def __init__(self, hosts, folder):
        self.hosts, self.folder = hosts, folder
        self.processes, self.commands = [], {}
        self.lost = set()  # the numbers of nodes that a test has crashed
        self.head = hosts.address(250)
        self.url = f"https://{self.head}:26443"
        os.makedirs(os.path.join(folder, "etcd"), exist_ok=True)
        self.config = self.write_config("admin", ADMINISTRATOR)
        self.outsiders_config = self.write_config("outsider", OUTSIDER)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # --- files ------------------------------------------------------------------------------------
    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "w") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return self.path(name)

    def write_config(self, name, token):
        return self.write(
            f"{name}.config",
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}],
                "users": [{"name": name, "user": {"token": token}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": name}}],
                "current-context": "x",
            },
        )

    # --- life -------------------------------------------------------------------------------------
    def _spawn(self, name, *command):
        log = open(self.path(f"{name}.log"), "ab")
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
        )
        log.close()
        self.processes.append((name, process))
        self.commands[name] = command

    def stop(self, name):
        """One of the servers, as if its machine were lost."""
        (process,) = (process for server, process in self.processes if server == name)
        self.processes.remove((name, process))
        process.kill()
        process.wait()

    def start_again(self, name):
        self._spawn(name, *self.commands[name])
        self.wait_until(self.answers, "the API server to answer")

    def answers(self):
        return self.kubectl("get", "--raw", "/readyz", check=False) == "ok"

    def _start(self):
        store = "http://127.0.0.1:22379"
        peer = "http://127.0.0.1:22380"
        self._spawn(
            "etcd",
            *("etcd", "--data-dir", self.path("etcd"), "--listen-client-urls", store),
            *("--advertise-client-urls", store, "--listen-peer-urls", peer, "--unsafe-no-fsync"),
            *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
        )
        self.write("tokens.csv", f"{ADMINISTRATOR},admin,1,system:masters\n{OUTSIDER},outsider,2,outsiders\n")
        subprocess.run(["openssl", "genrsa", "-out", self.path("sa.key"), "2048"], check=True, capture_output=True)
        self._spawn(
            "kube-apiserver",
            *(os.path.join(servers(), "kube-apiserver"), f"--etcd-servers={store}", f"--bind-address={self.head}"),
            *(f"--advertise-address={self.head}", "--secure-port=26443", f"--cert-dir={self.path('certs')}"),
            *(f"--token-auth-file={self.path('tokens.csv')}", "--authorization-mode=RBAC"),
            *("--service-cluster-ip-range=10.81.0.0/24", "--service-account-issuer=https://local"),
            *(f"--service-account-key-file={self.path('sa.key')}", "--disable-admission-plugins=ServiceAccount"),
            *(f"--service-account-signing-key-file={self.path('sa.key')}", "--feature-gates=TTLAfterFinished=true"),
            *("--kubelet-preferred-address-types=InternalIP", "--allow-privileged"),
        )
        self.wait_until(self.answers, "the API server to answer")
        for name, options in {
            "kube-controller-manager": [
                "--controllers=job,ttl-after-finished,garbagecollector,nodelifecycle,resourcequota,podgc,namespace",
                "--feature-gates=TTLAfterFinished=true",
                "--node-monitor-period=2s",
                "--node-monitor-grace-period=12s",
                "--concurrent-gc-syncs=5",
            ],
            "kube-scheduler": [],
        }.items():
            self._spawn(
                name,
                *(os.path.join(servers(), name), f"--kubeconfig={self.config}", "--leader-elect=false", *options),
            )
        make_image(self.path("box.tar"))
        shutil.copy(os.path.join(servers(), "kubelet"), self.path("kubelet"))
        self.write("containerd.toml", CONTAINERD.format(image=IMAGE, cni=CNI))
        self.write("kubelet.yaml", KUBELET)
        self.write("node", NODE)
        for k, _ in enumerate(self.hosts.names, 1):
            self.start_node(k)
        self.wait_until(lambda: len(self.ready_nodes()) == len(self.hosts.names), "the nodes to be ready")

    def start_node(self, k):
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "type": "bridge",
            "bridge": "pods0",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/k/addresses",
                "ranges": [[{"subnet": f"10.80.{k}.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        self.write(f"network-{k}.conf", network)
        routes = [
            f"ip route replace 10.80.{j}.0/24 via {self.hosts.address(j)}"
            for j in range(1, len(self.hosts.names) + 1)
            if j != k
        ]
        self.hosts.execute(
            k,
            *("env", f"PATH={self.folder}:{PATH}", "sh", self.path("node"), self.folder, str(k)),
            *(self.hosts.address(k), self.hosts.names[k - 1], "; ".join(routes)),
        )

    @contextlib.contextmanager
    def way_for_pods(self):
        """Between this machine and the network of the pods."""
        routes = [(f"10.80.{k}.0/24", "via", self.hosts.address(k)) for k in range(1, len(self.hosts.names) + 1)]
        try:
            for route in routes:
                subprocess.run(["ip", "route", "replace", *route], check=True)
            yield
        finally:
            for route in routes:
                subprocess.run(["ip", "route", "del", *route], check=False)

    def ready_nodes(self):
        listed = json.loads(self.kubectl("get", "nodes", "-o", "json", check=False) or '{"items": []}')
        return [
            node["metadata"]["name"]
            for node in listed["items"]
            if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
        ]

    def wait_until(self, condition, what, timeout=TIMEOUT_S):
        deadline = time.monotonic() + timeout
        while not condition():
            ended = [name for name, process in self.processes if process.poll() is not None]
            assert not ended, f"{ended} ended; see {self.folder}/*.log"
            assert time.monotonic() < deadline, f"waited {timeout:g} s for {what}; see {self.folder}/*.log"
            time.sleep(0.2)

    def close(self):
        for _, process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for _, process in self.processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for k in range(1, len(self.hosts.names) + 1):
            if k not in self.lost:
                self.hosts.execute(k, "pkill", "-KILL", "kubelet|containerd", check=False)

    # --- use --------------------------------------------------------------------------------------
    def kubectl(self, *arguments, check=True, config=None, **options):
        """What it prints; without `check` nothing from one that fails, or hangs at a server that begins to listen."""
        command = ["kubectl", "--kubeconfig", config or self.config, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
        except subprocess.TimeoutExpired:
            if check:
                raise
            return ""
        assert not check or done.returncode == 0, f"kubectl {arguments}: {done.stderr}"
        return done.stdout.strip()

    def get(self, *what):
        return json.loads(self.kubectl("get", *what, "-o", "json"))["items"]

    def evict(self, pod):
        """As `kubectl drain` does."""
        namespace = "default"
        body = {
            "apiVersion": "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        self.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body))

    def left(self):
        """Jobs and pods that are there."""
        return self.kubectl("get", "jobs,pods", "-o", "name").split()


# Runs in the host: FOLDER NUMBER ADDRESS NAME ROUTES. The daemons end with their host.
NODE = """\
set -e
mkdir -p /run/k/cni /run/k/kubelet
cp "$1/network-$2.conf" /run/k/cni/10-pods.conf
sh -c "$5"
echo 1 >/proc/sys/net/ipv4/ip_forward
setsid containerd --config "$1/containerd.toml" </dev/null >"$1/containerd-$2.log" 2>&1 &
n=0
until ctr -a /run/k/containerd.sock version >/dev/null 2>&1; do
  n=$((n + 1)); [ $n -lt 300 ] || { echo "containerd does not answer" >&2; exit 1; }
  sleep 0.1
done
ctr -a /run/k/containerd.sock -n k8s.io images import --snapshotter native "$1/box.tar" >/dev/null
setsid kubelet --config "$1/kubelet.yaml" --kubeconfig "$1/admin.config" --container-runtime=remote \
  --container-runtime-endpoint=unix:///run/k/containerd.sock --hostname-override "$4" --node-ip "$3" \
  --root-dir /run/k/kubelet --cert-dir /run/k/pki </dev/null >"$1/kubelet-$2.log" 2>&1 &
"""
