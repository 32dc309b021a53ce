# SPDX-License-Identifier: Apache-2.0
"""What horarun prints, byte for byte: the files TOPIC.cases hold the cases of one topic each.

    == NAME                          a case begins; each name is used once
    file PATH [executable]           it runs in a folder with this file, whose lines follow
    : TEXT
    mask REGEX -> REPLACEMENT        applied to what was printed before comparing
    $ [NAME=VALUE...] horarun ARGS   the command, quoted as for sh; no other variable is set
    | TEXT                           a line of standard output
    ! TEXT                           a line of standard error
    [CODE]                           the exit code, unless it is 0

A stream without lines is empty. "(no-eol)" after the last line says that no newline ends it. "(esc)" says that the
line has escapes as in Python, for bytes that are not printable ASCII, and for blanks at its end. Empty lines and
lines with "#" are comments between cases.

HORARUN names the program. HORA_ACCEPT=1 writes what was printed as what is expected (scripts/accept sets it); the
diff is then read like code.
"""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
NO_EOL = " (no-eol)"
ESCAPED = " (esc)"


def encode_lines(prefix, content):
    """The lines of a case for these bytes; no two contents have the same."""
    lines = content.split(b"\n")
    missing_newline = lines.pop() != b""
    if missing_newline:
        lines = content.split(b"\n")
    encoded = []
    for line in lines:
        text = line.decode("latin-1")
        if not re.fullmatch(r"([ -~]*[!-~])?", text) or text.endswith((NO_EOL, ESCAPED)):
            text = re.sub(r"[^ -~]|\\| $", lambda match: f"\\x{ord(match[0]):02x}", text) + ESCAPED
        encoded.append(f"{prefix} {text}".rstrip())
    if missing_newline:
        encoded[-1] += NO_EOL
    return encoded


def decode_line(line):
    text = line[2:]
    end = b"" if text.endswith(NO_EOL) else b"\n"
    text = text.removesuffix(NO_EOL)
    if text.endswith(ESCAPED):
        text = text.removesuffix(ESCAPED).encode().decode("unicode_escape")
    return text.encode("latin-1") + end


@dataclasses.dataclass
class Case:
    name: str
    path: pathlib.Path
    files: dict = dataclasses.field(default_factory=dict)  # path: (content, executable)
    masks: list = dataclasses.field(default_factory=list)
    env: dict = dataclasses.field(default_factory=dict)
    args: list = None
    expected: list = dataclasses.field(default_factory=list)

    def read(self, line):
        kind, _, rest = line.partition(" ")
        if kind in ("|", "!") or re.fullmatch(r"\[\d+\]", line):
            assert self.args is not None, line
            self.expected.append(line)
        elif kind == "file":
            name, _, executable = rest.partition(" ")
            assert executable in ("", "executable"), line
            self.files[name] = (b"", bool(executable))
        elif kind == ":":
            name = list(self.files)[-1]
            content, executable = self.files[name]
            self.files[name] = (content + decode_line(line), executable)
        elif kind == "mask":
            pattern, replacement = rest.split(" -> ")
            self.masks.append((pattern.encode(), replacement.encode()))
        elif kind == "$":
            assert self.args is None, line
            words = shlex.split(os.fsdecode(decode_line(line)[:-1]))
            program = words.index("horarun")
            self.env = dict(word.split("=", 1) for word in words[:program])
            self.args = words[program + 1 :]
        else:
            raise ValueError(line)

    def run(self, folder):
        """The lines that would be expected for what it prints now."""
        for name, (content, executable) in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o755 if executable else 0o644)
        # A sanitizer's build needs its own settings.
        sanitizers = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
        done = subprocess.run(
            [os.environ["HORARUN"], *self.args],
            cwd=folder,
            env=self.env | sanitizers,
            timeout=60,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        lines = []
        for prefix, content in (("|", done.stdout), ("!", done.stderr)):
            for pattern, replacement in self.masks:
                content = re.sub(pattern, replacement, content)
            lines += encode_lines(prefix, content)
        return lines + ([f"[{done.returncode}]"] if done.returncode else [])


def read_cases(path):
    cases = []
    for number, line in enumerate(path.read_text("ascii").split("\n"), 1):
        if line.startswith("== "):
            cases.append(Case(line[3:], path))
        elif line and not line.startswith("#"):
            try:
                cases[-1].read(line)
            except Exception as problem:
                raise ValueError(f"{path}:{number}: not a line of a case: {line}") from problem
    return cases


def accept(case, printed):
    """Puts these lines in place of the expected ones, and leaves every other line as it is."""
    lines = case.path.read_text("ascii").split("\n")
    begin = lines.index(f"== {case.name}")
    while not lines[begin].startswith("$ "):
        begin += 1
    end = begin + 1
    while re.match(r"[|!\[]", lines[end]):
        end += 1
    lines[begin + 1 : end] = printed
    case.path.write_text("\n".join(lines), "ascii")


CASES = [case for path in sorted(HERE.glob("*.cases")) for case in read_cases(path)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, tmp_path):
    printed = case.run(tmp_path)
    if os.environ.get("HORA_ACCEPT"):
        accept(case, printed)
    else:
        assert printed == case.expected, f"{case.path.name}: {case.name}"


def test_there_are_cases():
    names = [case.name for case in CASES]
    assert len(names) > 200 and len(set(names)) == len(names)


# One message of one shape for every usage error, with --json one event: nothing on stdout, exit code 2.
@pytest.mark.parametrize("case", [case for case in CASES if case.name.startswith("error_")], ids=lambda case: case.name)
def test_usage_errors_have_one_shape(case):
    *stderr, code = case.expected
    assert code == "[2]" and all(line.startswith("!") for line in stderr)
    if "--json" in case.args:
        assert len(stderr) == 1 and json.loads(decode_line(stderr[0]))["code"] == "E_USAGE"
        return
    assert stderr[0].startswith("! horarun: error: ")
    assert "\n".join(stderr).count("horarun: ") == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"a", b"a\n", b"a\n\n", b"a \n", b"\\t\n", b"a (esc)\n", b"a (no-eol)", b"\xff\0\r\n \n", b" a\n"],
)
def test_every_content_can_be_written(content):
    lines = encode_lines("|", content)
    assert b"".join(map(decode_line, lines)) == content and lines == [line.rstrip() for line in lines]
