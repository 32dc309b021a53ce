# SPDX-License-Identifier: Apache-2.0
"""The plan of one run of the campaign, derived from its seed."""

import dataclasses
import random

LEASE_S, GRACE_S, START_S = 6, 1, 20

# Those whose ranks go on until the job is ended.
ENDLESS = ("sleep", "stray", "threads", "chain", "collectives", "talk")
PROGRAMS = (*ENDLESS, "quick", "chatter")
STAGES = ("connect", "authenticate", "shell", "ship", "agent", "route", "prepare", "ready", "ranks")
LOCAL_STAGES = ("agent", "route", "prepare", "ready", "ranks")
LAUNCHER = (
    "launcher kill",
    "launcher stop",
    "launcher pause",
    "launcher files",
    "launcher memory",
    "user INT",
    "user TERM",
    "user HUP",
    "user INT INT",
    "user INT INT INT",
    "user QUIT INT",
    "reader gone",
)
AGENT = (
    "agent kill",
    "agent stop",
    "agent pause",
    "agent files",
    "agent memory",
    "shim kill",
    "shim pause",
    "shim stop",
    "both stop",
    "session kill",
)
HOST = ("crash", "cut", "cut and heal", "freeze", "slow", "disk full")
RANK = ("rank kill", "rank segv", "rank pause", "child kill")
# After these the job may go on, or not: it is ended by a signal then.
MAY_GO_ON = (
    "launcher pause",
    "launcher stop",
    "launcher files",
    "launcher memory",
    "user QUIT INT",
    "agent pause",
    "agent files",
    "agent memory",
    "shim pause",
    "shim stop",
    "cut and heal",
    "slow",
    "disk full",
    "rank pause",
    "child kill",
    "reader gone",
)


@dataclasses.dataclass
class Schedule:
    seed: int
    hosts: tuple  # numbers of test hosts; 0 is the launcher's own machine
    slots: int
    program: str
    cold: bool  # nothing is cached
    ship: bool  # a file travels
    shared: bool  # the test hosts have one home folder, and so one cache
    outsiders: bool  # others ask the rendezvous for what they may have, all the time
    point: tuple  # ("time", ms), ("stage", name), ("rank_start",), ("said", times), ("ending", ms)
    delay_ms: int  # from the point to the fault
    fault: str
    victim: int  # one of hosts
    heal_ms: int  # from the fault to its end, where it has one

    def __str__(self):
        return (
            f"seed {self.seed}: {self.program} on {self.hosts} x {self.slots}{' cold' if self.cold else ''}"
            f"{' ship' if self.ship else ''}{' shared' if self.shared else ''}"
            f"{' outsiders' if self.outsiders else ''}; {self.fault} at {self.victim}, "
            f"{self.delay_ms} ms behind {self.point}"
        )


def make(seed):
    chance = random.Random(seed)
    hosts = tuple(sorted(chance.sample(range(5), chance.choice([1, 2, 2, 3]))))
    program = chance.choice(PROGRAMS + ENDLESS)
    faults = list(LAUNCHER + AGENT + RANK)
    victim = chance.choice(hosts)
    if victim:
        faults += HOST * 2
    fault = chance.choice(faults)
    if not victim and fault == "session kill":
        fault = "agent kill"
    cold = chance.random() < 0.3 or fault == "disk full"
    stages = [stage for stage in (STAGES if victim else LOCAL_STAGES) if cold or stage != "ship"]
    points = [
        ("time", chance.randrange(400)),
        ("stage", chance.choice(stages)),
        ("stage", chance.choice(stages)),
        ("rank_start",),
    ]
    if program in ENDLESS:
        points += [("said", 1), ("said", "all"), ("ending", chance.randrange(1200))]
    point = chance.choice(points)
    if fault in RANK:
        point = ("said", "all") if program in ENDLESS else ("rank_start",)
    if fault == "rank segv" and program in ("stray", "threads", "chain"):
        fault = "rank kill"  # they are deaf to the other one
    if fault == "disk full":
        point = ("time", 0)
    shared = chance.random() < 0.25 and fault != "disk full"
    return Schedule(
        seed,
        hosts,
        chance.choice([1, 1, 2]),
        program,
        cold,
        chance.random() < 0.3,
        shared,
        chance.random() < 0.25,
        point,
        chance.choice([0, 0, 1, 5, chance.randrange(300)]),
        fault,
        victim,
        chance.choice([200, 1500, 2500, 6000]),
    )
