# SPDX-License-Identifier: Apache-2.0
"""An elastic job whose PyTorch script trains until it is asked to stop (programs/elastic_torch.py)."""

import os
import re
import uuid

import jobs

PYTHON = "/usr/bin/python3"


class Training:
    """A job that trains until it is asked to stop."""

    # On a busy machine Python takes its time to import torch.
    timeout = ("--elastic-timeout", 100, "--gloo-timeout-seconds", 100)

    def __init__(self, horarun, shared, *options):
        word = uuid.uuid4().hex[:8]
        self.stop_file = f"{shared}/stop.{word}"
        self.hosts_file = f"{shared}/hosts.{word}"
        self.options = options
        self.environment = {}
        self.horarun, self.shared = horarun, shared
        self.text = ""

    def list(self, *hosts):
        with open(self.hosts_file + ".new", "w", encoding="utf-8") as file:
            file.write("".join(f"{host}\n" for host in hosts))
        os.rename(self.hosts_file + ".new", self.hosts_file)

    def wait_for_discovery(self, runs=2):
        """Until the script has run so often from now on."""

        def count():
            return os.path.getsize(self.hosts_file + ".runs")

        goal = count() + runs
        jobs.wait_until(lambda: count() >= goal, "the discovery script to run")

    def start(self, *sick_hosts):
        self.job = self.horarun.start(
            *self.options,
            *self.timeout,
            "--verbose",
            PYTHON,
            f"{self.shared}/elastic_torch.py",
            self.stop_file,
            *sick_hosts,
            env=self.environment,
        )
        return self

    def wait_for(self, text, times=1):
        """Reads stdout on, until the text came so often from now on."""
        self.text += self.job.read_until(text, times, timeout=100)

    def pid_of(self, worker):
        return int(re.search(rf"worker {worker} pid (\d+)", self.text)[1])

    def finish(self, code=0):
        with open(self.stop_file, "w", encoding="utf-8"):
            pass
        finished = self.job.finish().expect(code)
        self.text += finished.text
        return finished

    def workers(self):
        return sorted(map(int, re.findall(r"worker (\d+) pid", self.text)))
