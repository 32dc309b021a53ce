# SPDX-License-Identifier: Apache-2.0
"""Prints a known amount of lines of mixed length to stdout:  chatter.py BYTES [SEED]

Every rank's bytes follow from its rank alone, so that the reader can make them again.
"""

import os
import random
import sys


def lines_of(rank, total, seed=0):
    source = random.Random(rank * 1000003 + seed)
    made = 0
    while made < total:
        length = source.choice([0, 1, 7, 80, 81, 1000, 4095, 4096, 4097, 70000])
        alphabet = source.choice([b"x", b"0123456789abcdef", b"\x00\x01\x7f", b"\xff\xfe\xc3", "äé€".encode()])
        line = (alphabet * (length // len(alphabet) + 1))[:length]
        end = source.choice([b"\n", b"\n", b"\n", b"\r", b"\r\n"])
        made += len(line) + len(end)
        yield line + end
    if source.random() < 0.5:
        yield b"the end has no newline"


if __name__ == "__main__":
    rank = int(os.environ["HOROVOD_RANK"])
    for line in lines_of(rank, int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0):
        # Odd pieces: a line crosses several writes.
        while line:
            written = os.write(1, line[:65521])
            line = line[written:]
