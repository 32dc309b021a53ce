"""Do the unit tests notice a bug?      (scripts/ci mutation [WORD...]: only those whose names hold a word)

Takes each bug of bugs.py into a copy of the code, builds the tests named there, and runs them: they
must fail. One that passes is a survivor, and a test is missing.
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


def main():
    wanted = [bug for bug in bugs.BUGS if all(word in bug[0] for word in sys.argv[1:])]
    copy = os.environ.get("HORA_MUTATION_COPY", os.path.join(ROOT, "build", "mutation"))
    os.makedirs(copy, exist_ok=True)
    run(["git", "-C", ROOT, "checkout-index", "-a", "-f", f"--prefix={copy}/"], check=True)
    build = os.path.join(copy, "build", "release")
    run(["cmake", "--preset", "release"], cwd=copy, check=True)
    targets = sorted({test for bug in wanted for test in bug[4].split()})
    made = run(["cmake", "--build", build, "--target", *targets])
    if made.returncode:
        sys.exit("the code does not build without a bug:\n" + made.stdout[-3000:])
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
            made = run(["cmake", "--build", build, "--target", *tests.split()])
            if made.returncode:
                broken.append(name)
                print(f"??       {name}: does not build: {[l for l in made.stdout.splitlines() if 'error' in l][:2]}", flush=True)
                continue
            noticed = None
            for test in tests.split():
                try:
                    if run([os.path.join(build, "bin", test), "--abort"], timeout=LIMIT_S).returncode:
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
    print(f"{len(wanted)} bugs in {time.monotonic() - seconds:.0f} s: {len(survivors)} survived {survivors}, {len(broken)} could not be put {broken}")
    sys.exit(1 if survivors or broken else 0)


main()
