# SPDX-License-Identifier: Apache-2.0
"""srun takes options from its environment. Those of the user's tasks do not reach the step of the agents: the names in
the manual and in the program of this Slurm are compared with what horarun takes away. HORA_SLURM_ROOT=FOLDER names
another Slurm, which need only be unpacked."""

import gzip
import json
import os
import re

import pytest
import slurm

NAME = rb"(?:SLURM|SRUN)_[A-Z][A-Z0-9_]*"
ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "1", "SLURM_STEP_ID": ""}
KEPT = {
    "which job it is, and where its controller": """
        CLUSTERS CLUSTER_NAME CONF JOBID JOB_ID JOB_ACCOUNT JOB_CPUS_PER_NODE JOB_NAME JOB_NODELIST JOB_NUM_NODES
        JOB_PARTITION JOB_QOS JOB_RESERVATION JOB_SEGMENT_SIZE NNODES NODE_ALIASES HET_SIZE ARRAY_JOB_ID ARRAY_TASK_ID
        SCRIPT_CONTEXT SUBMIT_DIR SUBMIT_HOST WORKING_CLUSTER PRIO_PROCESS""",
    "of a new job, not of a step in one": """
        ACCOUNT BURST_BUFFER DELAY_BOOT PARTITION POWER QOS REQ_SWITCH RESERVATION WAIT4SWITCH WCKEY""",
    "what horarun sets": "CPU_BIND EXPORT_ENV EXTERNAL_LAUNCHER KILL_BAD_EXIT MPI_TYPE OVERLAP WAIT",
    "how the user wants steps to be run, measured and reported": """
        ACCTG_FREQ COMPRESS CPU_FREQ_REQ DEBUG_FLAGS DISABLE_STATUS EPILOG EXIT_ERROR EXIT_IMMEDIATE GPU_FREQ
        NETWORK PMI_KVS_NO_DUP_KEYS PROFILE PROLOG SIGNAL SPANK_ SRUN_REDUCE_TASK_EXIT_MSG TASK_EPILOG TASK_PROLOG
        THREADS UMASK CONTAINER CONTAINER_ID CONTAINER_TYPE""",
}
KEPT_NAMES = {f"SLURM_{name}" for names in KEPT.values() for name in names.split()} | {
    "SRUN_CONTAINER",
    "SRUN_CONTAINER_ID",
    "SRUN_CONTAINER_TYPE",
    "SRUN_DEBUG",
}


def names_in_the_manual():
    with gzip.open(f"{slurm.ROOT}/usr/share/man/man1/srun.1.gz") as file:
        text = file.read()
    section = re.search(rb'^\.SH "?INPUT ENVIRONMENT.*?(?=^\.SH "?OUTPUT ENVIRONMENT)', text, re.M | re.S)
    return {name.decode() for name in re.findall(rb"\\fB(" + NAME + rb")", section[0])}


def names_in_the_program():
    with open(f"{slurm.ROOT}/usr/bin/srun", "rb") as file:
        return {name.decode() for name in re.findall(rb"(?<=\0)" + NAME + rb"(?=\0)", file.read())}


@pytest.mark.parametrize("names", [names_in_the_manual, names_in_the_program])
def test_options_of_the_users_tasks_stay_behind(horarun, names, tmp_path):
    try:
        known = names()
    except FileNotFoundError as missing:
        pytest.skip(f"no {missing.filename}")
    assert len(known) > 80
    (tmp_path / "srun").write_text("")
    os.chmod(tmp_path / "srun", 0o755)
    path = f"{tmp_path}:/usr/local/bin:/usr/bin:/bin"
    environment = {**dict.fromkeys(known, "1"), **ALLOCATION, "PATH": path}
    shown = json.loads(horarun.start("--dry-run", "--json", "true", env=environment).finish().expect(0).text)
    words = " ".join(shown["rsh"])
    taken = set(re.findall(r"-u (\S+)", words))
    set_by_us = set(re.findall(r"\b(S[A-Z_]+)=", words))
    assert known - taken - set_by_us - KEPT_NAMES == set(), "srun reads these, too: take them away, or keep them above"
    assert not taken & KEPT_NAMES
