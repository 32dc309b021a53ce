# SPDX-License-Identifier: Apache-2.0
"""horarun bundle-report collects everything about a job in one file, without its secrets."""

import json
import os
import stat

# Planted wherever a secret can get into a record; not one of them may come out.
SECRETS = {
    "variable": "v4ri4ble-s3cret-0001",
    "option": "0pti0n-s3cret-0002",
    "assigned": "4ssigned-s3cret-0003",
    "printed": "pr1nted-s3cret-0004",
    "bearer": "b34rer-s3cret-0005",
    "address": "4ddress-s3cret-0006",
    "maker": "hf_M4kerS3cret00007abcdef",
    "pem": "cGVtLXMzY3JldC0wMDA4",
    "echoed": "ech03d-s3cret-0009",
}
PROGRAM = f"""
echo "api_key: {SECRETS["printed"]}" >&2
echo "Authorization: Bearer {SECRETS["bearer"]}" >&2
echo "cloning https://me:{SECRETS["address"]}@example.org/x" >&2
echo "using {SECRETS["maker"]}" >&2
printf -- '-----BEGIN PRIVATE KEY-----\\n{SECRETS["pem"]}\\n-----END PRIVATE KEY-----\\n' >&2
echo "the value alone: $MY_SERVICE_TOKEN" >&2
echo "a word that stays" >&2
exit 3
"""


def test_one_file_without_secrets(horarun, tmp_path):
    record, html, out = tmp_path / "job.json", tmp_path / "job.html", tmp_path / "bundle.json"
    env = {"MY_SERVICE_TOKEN": SECRETS["echoed"], "HORA_TEST_PASSWORD": SECRETS["variable"], "HOROVOD_CYCLE_TIME": "3"}
    command = ["sh", "-c", PROGRAM, "sh", "--password", SECRETS["option"], f"SOME_TOKEN={SECRETS['assigned']}"]
    horarun.run("-np", 2, "--report", record, *command, env=env).expect(3)
    horarun.run("-np", 2, "--report", html, *command, env=env).expect(3)
    horarun.run("bundle-report", record, "-o", out, env=env).expect(0)
    for path in (record, html, out):
        text = path.read_text()
        assert "a word that stays" in text
        found = [name for name, secret in SECRETS.items() if secret in text]
        assert not found, (path.name, found)
    assert stat.S_IMODE(os.stat(out).st_mode) == 0o600
    bundle = json.loads(out.read_text())
    job = bundle["record"]
    assert job["command"][:2] == ["sh", "-c"] and job["exit_code"] == 3
    assert [host["ranks"] for host in job["hosts"]] == [[0, 1]]
    assert job["hosts"][0]["stages"] and job["phases"] and len(job["ranks"]) == 2
    assert [event["event"] for event in job["events"]][-1] == "job_end"
    assert bundle["examination"]["hosts"][0]["machine"]["kernel"]
    assert bundle["environment"]["HOROVOD_CYCLE_TIME"] == "3"
    assert bundle["environment"]["HORA_TEST_PASSWORD"] == "***" and "MY_SERVICE_TOKEN" not in bundle["environment"]


def test_an_invalid_record(horarun, tmp_path):
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"schema": 1}')
    done = horarun.run("bundle-report", wrong, "-o", tmp_path / "out.json").expect(2)
    assert "wrong.json" in done.messages and "not a record" in done.messages, done
    horarun.run("bundle-report", tmp_path / "absent.json", "-o", tmp_path / "out.json").expect(2)
    done = horarun.run("bundle-report", wrong).expect(2)
    assert "bundle-report RECORD.json -o OUT.json" in done.messages
    assert not (tmp_path / "out.json").exists()
