# SPDX-License-Identifier: Apache-2.0
"""horarun doctor on test hosts: it names a problem of one of several hosts, with the host and a fix."""

import json
import os
import re

import pytest


def doctor(horarun, hosts, *options, code=0, env=None):
    # The machine that tests run on may be busy; how long it may take is not for them to say.
    done = horarun.run("doctor", "-H", hosts.spec(1), "--json", "--start-timeout", "30s", *options, env=env).expect(
        code
    )
    report = json.loads(done.out)
    assert report["schema"] == 1
    return report


def found(report, code):
    return [finding for finding in report["findings"] if finding["code"] == code]


def expect_whole(finding, host):
    """What, where, why, fix."""
    assert host in finding["hosts"], finding
    assert all(finding[part] for part in ("what", "why", "fix")), finding


def test_healthy_hosts(horarun, hosts):
    four = hosts(4)
    report = doctor(horarun, four)
    assert not [f for f in report["findings"] if f["severity"] == "error"], report["findings"]
    assert [host["name"] for host in report["hosts"]] == four.names
    for host in report["hosts"]:
        assert host["machine"]["cpu"]["usable"] > 0 and host["machine"]["memory"]["total_bytes"] > 0
        assert len(host["peers"]) == 3
        for peer in host["peers"]:
            assert peer["rtt_us"] > 0 and peer["mbit_s"] > 0 and peer["path_mtu"] == peer["mtu"], peer
        assert abs(host["clock_offset_ms"]) <= host["clock_error_ms"] + 50


def test_this_machine_without_hosts(horarun):
    done = horarun.run("doctor").expect(0)
    assert "localhost" in done.text and "1 host examined" in done.text


@pytest.mark.parametrize("value", ["^docker0", "nosuch0"])
def test_an_interface_for_nccl_that_leads_nowhere(horarun, hosts, value):
    report = doctor(horarun, hosts(2), env={"NCCL_SOCKET_IFNAME": value})
    (finding,) = found(report, "D_NCCL_INTERFACE")
    for host in ("node1", "node2"):
        expect_whole(finding, host)
    assert f"NCCL_SOCKET_IFNAME={value}" in finding["what"], finding


def test_libraries_are_used_on_every_host_and_by_all_together(horarun, hosts):
    report = doctor(horarun, hosts(3))
    assert report["world"]["ranks"] == 3 and report["world"]["backends"] == ["tcp"], report["world"]
    for host in report["hosts"]:
        selftests = host["selftests"]
        assert selftests["alone"]["ranks"] == 1 and selftests["shared_memory"]["ranks"] == 2, selftests
        assert selftests["shared_memory"]["backends"] == ["shm"] and selftests["tcp"]["backends"] == ["tcp"], selftests
        assert not [name for name, selftest in selftests.items() if "error" in selftest], selftests


def test_the_libraries_of_a_gpu_are_used(horarun):
    doubles = os.path.join(horarun.build, "tests", "gpu_double")
    if not os.path.exists(os.path.join(doubles, "libnccl.so.2")):
        pytest.skip("the doubles of the GPU's libraries were not built")
    libraries = {"LD_LIBRARY_PATH": doubles}
    done = horarun.run("doctor", "--json", "--start-timeout", "30s", env=libraries).expect(0)
    (host,) = json.loads(done.out)["hosts"]
    selftests = host["selftests"]
    assert selftests["driver"] == {"driver": "535.104.05", "cuda": "13.0"}, selftests
    assert re.fullmatch(r"\d+\.\d+\.\d+", selftests["nccl"]["version"]) and "error" not in selftests["nccl"], selftests
    assert doubles in selftests["nccl_copies"][0]["path"], selftests
    assert "notes" not in selftests["nccl"], selftests

    done = horarun.run(
        "doctor", "--json", "--start-timeout", "30s", env={**libraries, "HORA_DOUBLE_REFUSES": "code,ptx"}
    ).expect(0)
    (finding,) = found(json.loads(done.out), "D_NCCL")
    expect_whole(finding, "localhost")
    assert "PTX: cuModuleLoadData: the PTX compiler is missing" in finding["what"], finding

    done = horarun.run(
        "doctor", "--json", "--start-timeout", "30s", env={**libraries, "HORA_NVML_DOUBLE": "mismatch"}
    ).expect(1)
    (finding,) = found(json.loads(done.out), "K_driver-library-mismatch")
    expect_whole(finding, "localhost")
    assert finding["sources"]


def test_sixteen_hosts(horarun, hosts):
    """The figure is printed; the bar (10 s) is for a quiet machine, this one only has to end."""
    report = doctor(horarun, hosts(16))
    print(f"16 hosts examined in {report['seconds']:.1f} s")
    assert len(report["hosts"]) == 16
    assert all(len(host["peers"]) == 15 for host in report["hosts"])


def test_a_host_that_is_down(horarun, hosts):
    four = hosts(4)
    four.act("cut", 3)
    try:
        done = horarun.run("doctor", "-H", four.spec(1), "--json", "--start-timeout", "4s").expect(1)
    finally:
        four.act("heal", 3)
    report = json.loads(done.out)
    errors = [f for f in report["findings"] if f["severity"] == "error"]
    assert len(errors) == 1, errors
    expect_whole(errors[0], "node3")
    assert errors[0]["code"] in ("E_CONNECT_TIMEOUT", "E_START_TIMEOUT", "E_CONNECT")
    # The others were examined all the same.
    assert [bool(host["machine"]) for host in report["hosts"]] == [True, True, False, True]


def test_two_hosts_that_cannot_reach_each_other(horarun, hosts):
    four = hosts(4)
    four.act("part", 2, 4)
    try:
        report = doctor(horarun, four, code=1)
    finally:
        four.act("join", 2, 4)
    routes = found(report, "D_ROUTE")
    assert {frozenset(f["hosts"]) for f in routes} == {frozenset(("node2", "node4"))}, routes
    expect_whole(routes[0], "node2")
    assert "--network-interfaces" in routes[0]["fix"]


def test_large_packets_that_vanish(horarun, hosts):
    four = hosts(4)
    four.execute(
        2,
        "nft",
        "table inet jumbo { chain in { type filter hook input priority 0; "
        "meta l4proto udp meta length > 1400 drop; }; }",
    )
    try:
        report = doctor(horarun, four, code=1)
    finally:
        four.execute(2, "nft", "delete table inet jumbo")
    packets = found(report, "D_MTU")
    assert packets and all("node2" in f["hosts"] for f in packets), packets
    assert "1400" in packets[0]["what"] and "mtu" in packets[0]["fix"]


def test_a_small_shm(horarun, hosts):
    four = hosts(4)
    four.execute(1, "mount", "-o", "remount,size=16m", "/dev/shm")
    try:
        report = doctor(horarun, four)
    finally:
        four.execute(1, "mount", "-o", "remount,size=1g", "/dev/shm")
    (finding,) = found(report, "D_SHM")
    expect_whole(finding, "node1")
    assert finding["hosts"] == ["node1"] and "--shm-size" in finding["fix"]


def test_too_many_slots(horarun, hosts):
    four = hosts(4)
    done = horarun.run("doctor", "-H", "node1:1,node2:500", "--json").expect(0)
    report = json.loads(done.out)
    (finding,) = found(report, "D_SLOTS_CPUS")
    assert finding["hosts"] == ["node2"] and "500 slots" in finding["what"] and "-H node2:" in finding["fix"]
    assert four.names


def test_leftovers_of_a_dead_job(horarun, hosts):
    four = hosts(4)
    four.execute(3, "sh", "-c", "HORA_JOB_ID=gone setsid sleep 987 >/dev/null 2>&1 </dev/null & :")
    try:
        report = doctor(horarun, four)
    finally:
        four.execute(3, "pkill", "-f", "sleep 987")
    (finding,) = found(report, "D_LEFTOVERS")
    expect_whole(finding, "node3")
    assert "sleep 987" in finding["what"]


def test_a_host_without_python(horarun, hosts):
    three = hosts(3, without=["python3", "/usr/bin/python3.11"])
    report = doctor(horarun, three)
    assert {h for f in found(report, "D_PYTHON") for h in f["hosts"]} == set(three.names)


def test_one_machine_by_two_names(horarun, hosts):
    hosts(3)
    done = horarun.run("doctor", "-H", "node1,node1-6,node2", "--json").expect(1)
    (finding,) = found(json.loads(done.out), "D_SAME_HOST")
    assert set(finding["hosts"]) == {"node1", "node1-6"}


def test_check_hosts_stops_a_job(horarun, hosts):
    four = hosts(4)
    horarun.run("--check-hosts", "-H", four.spec(1), "true").expect(0)
    four.act("part", 1, 2)
    try:
        done = horarun.run("--check-hosts", "-H", four.spec(1), "echo", "ran").expect(125)
    finally:
        four.act("join", 1, 2)
    assert "E_HOSTS_UNFIT" in done.messages and "D_ROUTE" in done.messages and "ran" not in done.text


def test_check_hosts_before_a_job_with_the_runtime_of_the_hosts(horarun):
    done = horarun.run("--check-hosts", "--runtime", "host", "-np", 1, "echo", "ran").expect(0)
    assert "1 host examined" in done.messages and "ran" in done.text


@pytest.mark.parametrize("faulty", ["refused"])
def test_the_text_names_all_four_parts(horarun, hosts, faulty):
    hosts(3)
    done = horarun.run("doctor", "-H", "node1,node2", "-p", 9).expect(1)
    assert "error [E_CONNECT_REFUSED] node1" in done.text and "why: " in done.text and "fix: " in done.text
