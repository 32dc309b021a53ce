# SPDX-License-Identifier: Apache-2.0
"""Runs hora-transport-probe (tests/support/transports) and reads what it prints."""

import hashlib
import json
import os
import subprocess

LIMIT_S = 90


class Outcome:
    """What became of one run: `results` by host, `stages` as (host, stage, detail) in order."""

    def __init__(self, argv, done):
        self.argv, self.code, self.errors = argv, done.returncode, done.stderr
        self.results, self.stages = {}, []
        for line in done.stdout.splitlines():
            entry = json.loads(line)
            if entry.get("event") == "stage":
                self.stages.append((entry["host"], entry["stage"], entry["detail"]))
            elif "host" in entry:
                self.results[entry["host"]] = entry

    def shipped(self, host=None):
        return [detail for name, stage, detail in self.stages if stage == "ship" and host in (None, name)]

    def hello(self, host="node1"):
        result = self.results[host]
        assert result["result"] == "hello", f"{result}\n{self}"
        return result

    def failure(self, code, host="node1"):
        """The message; it names the host."""
        result = self.results[host]
        assert result["result"] == "failure" and result["code"] == code, f"{result}\n{self}"
        assert host in result["message"], result
        return result["message"] + " | " + result["advice"]

    def __str__(self):
        return f"$ {' '.join(self.argv)}\nexit {self.code}\n{self.stages}\n{self.results}\n{self.errors}"


class Probe:
    def __init__(self, build):
        self.program = os.path.join(build, "bin", "hora-transport-probe")
        self.agent = os.path.join(build, "bin", "hora-double-agent")
        with open(self.agent, "rb") as file:
            self.sha = hashlib.sha256(file.read()).hexdigest()

    def argv(self, hosts, *flags, arguments=()):
        argv = [self.program, "--agent", self.agent, "--sha", self.sha, "--stages"]
        for host in [hosts] if isinstance(hosts, str) else hosts:
            argv += ["--host", host]
        for argument in arguments:
            argv += ["--arg", argument]
        return argv + [str(flag) for flag in flags]

    def __call__(self, hosts, *flags, arguments=(), environment=None):
        argv = self.argv(hosts, *flags, arguments=arguments)
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, **(environment or {})}
        )
        return Outcome(argv, done)

    def hold(self, hosts, *flags, arguments=()):
        """Started and connected: the process, whose stdin ends it."""
        argv = self.argv(hosts, "--hold", *flags, arguments=arguments)
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for line in process.stdout:
            if '"event":"hello"' in line:
                return process
        raise AssertionError(f"no agent: {process.communicate()}")
