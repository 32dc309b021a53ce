#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The seeds of the fuzz targets: tests/fuzz/corpus/TARGET holds those of one target.

tests/fuzz/corpus.py unpack TARGET FOLDER     writes each seed into a file of its name, as libFuzzer wants them
tests/fuzz/corpus.py add TARGET FILE...       adds these files as seeds
tests/fuzz/corpus.py replay PROGRAM           runs TARGET_replay over every seed of TARGET

A seed is a line "NAME: TEXT", or "NAME:" and indented lines, each of which a newline ends unless a backslash does.
Bytes that are not printable ASCII, backslashes and blanks at the end are written as in C. X\\{N} is X, N times.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
SHORT = {"\\": "\\\\", "\t": "\\t", "\r": "\\r"}
ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|[\\tr])(?:\\\{(\d+)\})?|(.)\\\{(\d+)\}")


def escape(line):
    def one(match):
        character, count = match[1], len(match[0])
        text = SHORT.get(character) or (character if " " <= character <= "~" else f"\\x{ord(character):02x}")
        return f"{text}\\{{{count}}}" if count > 15 else text * count

    text = re.sub(r"(.)\1*", one, line.decode("latin-1"), flags=re.DOTALL)
    return re.sub(r" $", r"\\x20", text)


def unescape(text):
    def one(match):
        code, count, character, character_count = match.groups()
        if character:
            return character * int(character_count)
        value = {"\\": "\\", "t": "\t", "r": "\r"}.get(code) or chr(int(code[1:], 16))
        return value * int(count or 1)

    return ESCAPE.sub(one, text).encode("latin-1")


def write(seeds):
    text = ""
    for name in sorted(seeds):
        *lines, last = seeds[name].split(b"\n")
        if not lines:
            text += f"{name}: {escape(last)}".rstrip() + "\n"
            continue
        text += f"{name}:\n" + "".join(f"  {escape(line)}\n" if line else "\n" for line in lines)
        text += f"  {escape(last)}\\\n" if last else ""
    return text


def read(text):
    seeds, name = {}, None
    for line in text.split("\n")[:-1]:
        if line and not line.startswith("  "):
            name, _, rest = line.partition(":")
            seeds[name] = unescape(rest[1:])
        elif re.search(r"(?<!\\)(\\\\)*\\$", line):
            seeds[name] += unescape(line[2:-1])
        else:
            seeds[name] += unescape(line[2:]) + b"\n"
    return seeds


def unpack(target, folder):
    for name, content in read((CORPUS / target).read_text("ascii")).items():
        (folder / name).write_bytes(content)


def add(target, files):
    path = CORPUS / target
    seeds = read(path.read_text("ascii")) if path.exists() else {}
    seeds.update((file.name, file.read_bytes()) for file in files)
    path.write_text(write(seeds), "ascii")


def main(arguments):
    command, name, *paths = (*arguments, "", "")
    paths = [pathlib.Path(path) for path in paths if path]
    if command == "unpack" and len(paths) == 1:
        unpack(name, paths[0])
    elif command == "add" and paths:
        add(name, paths)
    elif command == "replay" and name and not paths:
        with tempfile.TemporaryDirectory() as folder:
            unpack(os.path.basename(name).removesuffix("_replay"), pathlib.Path(folder))
            return subprocess.run([name, folder]).returncode
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
