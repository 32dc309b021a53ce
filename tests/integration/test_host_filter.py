# SPDX-License-Identifier: Apache-2.0
"""--include and --exclude: some of the hosts, and some of their GPUs."""

SEEN = ("sh", "-c", 'echo "$HOROVOD_HOSTNAME $LOCAL_RANK ${CUDA_VISIBLE_DEVICES-unset}"')


def test_hosts_and_gpus(horarun, hosts):
    hosts(2)
    listed = ("-H", "node1:4,node2:2")
    done = horarun.run(*listed, "--include", "node1:3,1@node2", *SEEN, env={"CUDA_VISIBLE_DEVICES": "9"}).expect(0)
    assert done.ranks() == {
        0: ["node1 0 3,1"],
        1: ["node1 1 3,1"],
        2: ["node2 0 unset"],
        3: ["node2 1 unset"],
    }, done
    done = horarun.run(*listed, "--exclude", "node1:0,2@node2", "--gpus-per-rank", 1, *SEEN).expect(0)
    assert done.ranks() == {0: ["node1 0 1"], 1: ["node1 1 3"]}, done
    done = horarun.run(*listed, "--exclude", "node1", *SEEN).expect(0)
    assert done.ranks() == {0: ["node2 0 unset"], 1: ["node2 1 unset"]}, done


def test_this_machine(horarun):
    done = horarun.run("--include", "localhost:0,2", *SEEN, env={"CUDA_VISIBLE_DEVICES": "9"}).expect(0)
    assert done.ranks() == {0: ["localhost 0 0,2"], 1: ["localhost 1 0,2"]}, done
    done = horarun.run(
        *("--include", "localhost:5-6", "-np", 1, "-x", "A=1", *SEEN, ":", "-np", 1, "sh", "-c"),
        'echo "$CUDA_VISIBLE_DEVICES ${A-unset}"',
    ).expect(0)
    assert done.ranks() == {0: ["localhost 0 5,6"], 1: ["5,6 unset"]}, done
