# SPDX-License-Identifier: Apache-2.0
"""A second sshd on a test host, with settings of its own."""

import jobs


class ExtraSshd:
    def __init__(self, hosts, k):
        self.hosts, self.k, self.started = hosts, k, []

    def start(self, port, *lines, environment=(), log=""):
        """`lines` of sshd_config take the place of the host's own. It listens when this returns."""
        pid_file = f"/run/sshd{port}.pid"
        lines = [*lines, f"PidFile {pid_file}"]
        drop = "".join(f"/^{line.split()[0]} /d;" for line in lines)
        self.hosts.execute(
            self.k,
            "sh",
            "-c",
            f"rm -f {pid_file}; sed '{drop}' /run/host/sshd_config >/run/sshd{port} && "
            f"cat >>/run/sshd{port} && env {' '.join(environment)} /usr/sbin/sshd -f /run/sshd{port} -p {port}"
            + (f" -E {log}" if log else ""),
            input="".join(f"{line}\n" for line in lines),
        )
        self.started.append(port)
        # It goes into the background first, listens then, and writes the file last.
        jobs.wait_until(lambda: self.has(port), f"sshd on port {port}")

    def has(self, port):
        return self.hosts.execute(self.k, "sh", "-c", f"cat /run/sshd{port}.pid 2>/dev/null", check=False).strip()

    def stop(self):
        for port in self.started:
            self.hosts.execute(self.k, "sh", "-c", f"kill $(cat /run/sshd{port}.pid)", check=False)
            jobs.wait_until(lambda: not self.has(port), f"the end of sshd on port {port}")
        self.started.clear()
