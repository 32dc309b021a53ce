#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets the programs of a root run with an older glibc than they were linked with:   older_glibc.py ROOT 2.28

For a system of which no archive is left: glibc itself is genuine, and the distribution around it is a newer one. In
each of its ELF files, what asks for a newer version asks for the first one (exp@GLIBC_2.29 becomes exp@GLIBC_2.2.5).
Nothing of Hora is in such a root when this runs.
"""

import os
import re
import struct
import sys

SHT_GNU_VERNEED = 0x6FFFFFFE
FIRST = b"GLIBC_2.2.5"  # of x86-64


def sections(data):
    """type -> (offset, size, offset of the strings that it names); of a 64-bit little-endian file."""
    (at,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    return {kind: (offset, length, headers[link][4]) for _, kind, _, _, offset, length, link, *_ in headers}


def release(text):
    found = re.fullmatch(rb"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", text)
    return (int(found[1]), int(found[2])) if found else None


def elf_hash(text):
    number = 0
    for byte in text:
        number = (number << 4) + byte
        number = (number ^ (number & 0xF0000000) >> 24) & 0x0FFFFFFF
    return number


def adapt(data, most):
    """Whether anything was to be changed in these bytes of a file."""
    found = sections(data)
    if SHT_GNU_VERNEED not in found:
        return False
    at, _, strings = found[SHT_GNU_VERNEED]
    first = data.find(b"\0" + FIRST + b"\0", strings) + 1
    changed = False
    while True:
        _, count, _, aux, following = struct.unpack_from("<HHIII", data, at)
        entry = at + aux
        for _ in range(count):
            name, skip = struct.unpack_from("<II", data, entry + 8)
            text = bytes(data[strings + name : data.index(0, strings + name)])
            if (release(text) or most) > most:
                struct.pack_into("<I", data, entry, elf_hash(FIRST))
                struct.pack_into("<I", data, entry + 8, first - strings)
                changed = True
            entry += skip
        if not following:
            break
        at += following
    return changed


def main(root, version):
    most = tuple(int(part) for part in version.split("."))
    changed = 0
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                if file.read(6) != b"\x7fELF\x02\x01":
                    continue
                data = bytearray(b"\x7fELF\x02\x01" + file.read())
            if len(data) >= 64 and struct.unpack_from("<H", data, 60)[0] and adapt(data, most):
                with open(path, "r+b") as file:
                    file.write(data)
                changed += 1
    print(f"older_glibc: {changed} files changed", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
