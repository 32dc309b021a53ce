# SPDX-License-Identifier: Apache-2.0
"""Checks that the tests notice bugs. `scripts/ci mutation [WORD...]` runs those whose names contain all words.

Puts each bug of bugs.py into a copy of the code, builds the tests named there, and runs them: they
must fail. If they pass, a test is missing. A test is a program of unit tests, or
one of pytest: integration/FILE::NAME or python/FILE::NAME.
"""

import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, HERE)
import bugs  # noqa: E402

LIMIT_S = 240


def run(command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)


def is_pytest(test):
    return ".py" in test


def targets_of(tests):
    return sorted(
        {
            target
            for test in tests
            for target in (
                ("horarun", "bundle", "hora-transport-probe", "hora-double-agent") if is_pytest(test) else (test,)
            )
        }
    )


def fails(copy, build, test):
    """That it did, and not that it could not be run."""
    if not is_pytest(test):
        return run([os.path.join(build, "bin", test), "--abort"], timeout=LIMIT_S).returncode != 0
    done = run(
        [
            os.path.join(copy, "tests", "integration", "in-a-world"),
            "/usr/bin/python3",
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            os.path.join(copy, "tests", test),
        ],
        cwd=copy,
        timeout=LIMIT_S,
        env={**os.environ, "HORA_BUILD": build, "HORA_BUILD_DIR": build},
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("E  ")]
    print("".join(f"         {line[:160]}\n" for line in said[:2]), end="", flush=True)  # why it failed
    if done.returncode > 1 or (done.returncode == 0 and " passed" not in done.stdout):
        sys.exit(f"{test} cannot be run here:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 1


def main():
    wanted = [bug for bug in bugs.BUGS if all(word in bug[0] for word in sys.argv[1:])]
    copy = os.environ.get("HORA_MUTATION_COPY", os.path.join(ROOT, "build", "mutation"))
    os.makedirs(copy, exist_ok=True)
    run(["git", "-C", ROOT, "checkout-index", "-a", "-f", f"--prefix={copy}/"], check=True)
    build = os.path.join(copy, "build", "release")
    run(["cmake", "--preset", "release"], cwd=copy, check=True)
    tests = sorted({test for bug in wanted for test in bug[4].split()})
    made = run(["cmake", "--build", build, "--target", *targets_of(tests)])
    if made.returncode:
        sys.exit("the code does not build without a bug:\n" + made.stdout[-3000:])
    for test in tests:
        if fails(copy, build, test) and fails(copy, build, test):  # a busy machine has a second chance
            sys.exit(f"{test} fails without a bug")
    survivors, broken, seconds = [], [], time.monotonic()
    for name, path, old, new, tests in wanted:
        place = os.path.join(copy, path)
        with open(place) as file:
            text = file.read()
        if text.count(old) != 1:
            broken.append(name)
            print(f"??       {name}: {path} holds it {text.count(old)} times", flush=True)
            continue
        with open(place, "w") as file:
            file.write(text.replace(old, new))
        try:
            made = run(["cmake", "--build", build, "--target", *targets_of(tests.split())])
            if made.returncode:
                broken.append(name)
                errors = [line for line in made.stdout.splitlines() if "error" in line]
                print(f"??       {name}: does not build: {errors[:2]}", flush=True)
                continue
            noticed = None
            for test in tests.split():
                try:
                    if fails(copy, build, test):
                        noticed = test
                except subprocess.TimeoutExpired:
                    noticed = f"{test} (by its time)"
                if noticed:
                    break
            if not noticed:
                survivors.append(name)
            print(f"{'noticed ' if noticed else 'SURVIVED'} {name}: {noticed or tests}", flush=True)
        finally:
            with open(place, "w") as file:
                file.write(text)
    print(
        f"{len(wanted)} bugs in {time.monotonic() - seconds:.0f} s: {len(survivors)} survived {survivors}, "
        f"{len(broken)} could not be put {broken}"
    )
    sys.exit(1 if survivors or broken else 0)


main()
