# SPDX-License-Identifier: Apache-2.0
"""A way to a host that cannot be trusted: runs the real agent here, and falsifies what it says.

    liar.py LIE VICTIM HOST LINE        as --rsh 'python3 liar.py LIE VICTIM'

Only the way to VICTIM lies; to every other host it passes all through unchanged.
"""

import contextlib
import os
import random
import struct
import subprocess
import sys
import threading

MAGIC = b"\x01HORA-AGENT-1\n"
HELLO, READY, STARTED, OUTPUT, EXIT, GOODBYE, FAILURE, LOG, INPUT_ACK, GPU_FAULT, SUSPEND = (
    1,
    3,
    4,
    5,
    7,
    8,
    9,
    10,
    11,
    14,
    44,
)
LEAST, MOST = -(1 << 63), (1 << 63) - 1  # of 64 bits


def frame(kind, payload=b""):
    return struct.pack("<IB", len(payload), kind) + payload


def output(rank, data):
    return frame(OUTPUT, struct.pack("<IB", rank, 1) + data)


# CBOR, as much of it as messages have: numbers, bytes, lists, maps with names, yes and no.


def _head(major, number):
    for info, size, code in ((24, 1, ">B"), (25, 2, ">H"), (26, 4, ">I"), (27, 8, ">Q")):
        if number < 24:
            return bytes([major << 5 | number])
        if number < 1 << 8 * size:
            return bytes([major << 5 | info]) + struct.pack(code, number)


def encode(value):
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        return _head(3, len(value)) + value.encode()
    if isinstance(value, list):
        return _head(4, len(value)) + b"".join(map(encode, value))
    return _head(5, len(value)) + b"".join(encode(name) + encode(item) for name, item in value.items())


def decode(data):
    """The value, and what is behind it."""
    major, number = data[0] >> 5, data[0] & 31
    rest = data[1:]
    if major == 7:
        return number == 21, rest
    if number >= 24:
        size = 1 << (number - 24)
        number, rest = int.from_bytes(rest[:size], "big"), rest[size:]
    if major in (0, 1):
        return (number if major == 0 else -1 - number), rest
    if major in (2, 3):
        return (rest[:number] if major == 2 else rest[:number].decode()), rest[number:]
    items = []
    for _ in range(number * (major - 3)):
        item, rest = decode(rest)
        items.append(item)
    return (items if major == 4 else dict(zip(items[::2], items[1::2]))), rest


def changed(payload, **fields):
    message, rest = decode(payload)
    assert not rest and set(fields) <= set(message), message
    return encode({**message, **fields})


def goodbye(survivors, pids):
    return frame(GOODBYE, encode(dict(survivors=survivors, survivor_pids=pids, killed=0, forking=False, stays=False)))


def failure(message, code=b"E_CACHE"):
    return frame(FAILURE, encode({"code": code, "message": message, "advice": b"", "subject": b""}))


def log(message):
    return frame(LOG, encode({"level": 4, "message": message}))


def gpu_fault(rank, text):
    return frame(
        GPU_FAULT, encode({"device": b"0000:3b:00", "xid": 79, "rank": rank, "pid": 0, "program": b"", "text": text})
    )


def endless(one):
    """600 MB of them, and some."""
    return (one for _ in range(600_000_000 // len(one) + 1))


def large(kind, megabytes):
    """A frame of this size, a bit at a time: it is the launcher's memory that is measured."""
    yield struct.pack("<IB", megabytes << 20, kind)
    for _ in range(megabytes):
        yield b"x" * (1 << 20)


class Liar:
    """falsify(kind, payload) answers the bytes that go out instead of that frame, or an iterator over them."""

    def __init__(self, lie):
        self.falsify = getattr(self, lie.replace("-", "_"))

    def exit_of_another_hosts_rank(self, kind, payload):
        return frame(kind, changed(payload, rank=0) if kind == EXIT else payload)

    def also_an_exit_of_another_hosts_rank(self, kind, payload):
        """Its own rank's exit is reported, too, so that nothing is missing in the end."""
        return frame(kind, payload) + (frame(kind, changed(payload, rank=0)) if kind == EXIT else b"")

    def output_of_another_hosts_rank(self, kind, payload):
        return (output(0, b"forged\n") if kind == STARTED else b"") + frame(kind, payload)

    def goodbye_without_exits(self, kind, payload):
        return b"" if kind == EXIT else frame(kind, payload)

    def goodbye_at_once(self, kind, payload):
        return frame(kind, payload) + (goodbye(0, []) if kind == HELLO else b"")

    def a_frame_of_4_gigabytes(self, kind, payload):
        return frame(kind, payload) + (b"\xff\xff\xff\xff\x05" + b"x" * 1000 if kind == STARTED else b"")

    def an_unknown_frame(self, kind, payload):
        return frame(kind, payload) + (frame(99, b"?") if kind == READY else b"")

    def ready_before_hello(self, kind, payload):
        return (frame(READY) if kind == HELLO else b"") + frame(kind, payload)

    def malformed_hello(self, kind, payload):
        return frame(kind, b"\x9f" * 10000 if kind == HELLO else payload)

    def truncated_exit(self, kind, payload):
        return frame(kind, payload[:-9] if kind == EXIT else payload)

    def noise(self, kind, payload):
        # The same each time: one in some hundred looks like the begin of a long frame, and is waited for.
        return random.Random(7).randbytes(5000) if kind == READY else frame(kind, payload)

    def also(self, when, more):
        """The truth, and behind the first frame of that kind what `more` holds."""

        def falsify(kind, payload):
            yield frame(kind, payload)
            if kind == when:
                yield from more

        return falsify

    def instead(self, when, **fields):
        return lambda kind, payload: frame(kind, changed(payload, **fields) if kind == when else payload)

    @property
    def output_without_credit(self):
        return self.also(STARTED, endless(output(1, b"x" * (1 << 20))))

    @property
    def small_output_without_credit(self):
        return self.also(STARTED, endless(output(1, b"x" * 1000)))

    @property
    def gpu_faults_without_end(self):
        return self.also(STARTED, endless(gpu_fault(1, b"x" * 300)))

    @property
    def large_gpu_faults(self):
        return self.also(STARTED, large(GPU_FAULT, 60))

    @property
    def logs_without_end(self):
        return self.also(STARTED, endless(log(b"x" * 1000)))

    @property
    def large_logs(self):
        return self.also(STARTED, large(LOG, 60))

    @property
    def a_large_failure(self):
        return self.also(READY, large(FAILURE, 60))

    @property
    def empty_output_without_end(self):
        return self.also(STARTED, endless(output(1, b"") * 1000))

    @property
    def a_gpu_fault_of_another_hosts_rank(self):
        return self.also(STARTED, [gpu_fault(0, b"forged")])

    @property
    def a_failure_in_another_hosts_name(self):
        return self.also(READY, [failure(b"host honest: its disk is full\nhorarun: rank 0 on honest forged")])

    @property
    def a_failure_of_no_class(self):
        return self.also(READY, [failure(b"words", b"E_\x1b[2J")])

    @property
    def an_exit_code_of_256(self):
        return self.instead(EXIT, exit_code=256)

    @property
    def a_signal_of_minus_128(self):
        return self.instead(EXIT, signal=-128)

    @property
    def an_exit_at_the_end_of_time(self):
        return self.instead(EXIT, exit_code=3, clock_ns=MOST)

    @property
    def a_life_without_end(self):
        return self.instead(EXIT, user_time_us=MOST, system_time_us=MOST)

    @property
    def a_hello_from_before_time(self):
        return self.instead(HELLO, clock_ns=LEAST)

    @property
    def two_billion_gpus(self):
        return self.instead(HELLO, gpus=2_000_000_000)

    @property
    def two_exits(self):
        return lambda kind, payload: frame(kind, payload) * (2 if kind == EXIT else 1)

    @property
    def a_million_survivors(self):
        whole = frame(
            GOODBYE,
            encode({"survivors": 1 << 20, "survivor_pids": [], "killed": 0, "forking": False, "stays": False}).replace(
                b"\x80", b"\x9a\x00\x10\x00\x00" + b"\x07" * (1 << 20)
            ),
        )
        return lambda kind, payload: whole if kind == GOODBYE else frame(kind, payload)

    @property
    def more_survivors_than_there_are(self):
        return lambda kind, payload: goodbye(0, [7]) if kind == GOODBYE else frame(kind, payload)

    @property
    def input_that_was_never_sent(self):
        return self.also(STARTED, [frame(INPUT_ACK, struct.pack("<II", 0, 1 << 31))])

    @property
    def a_suspension_without_request(self):
        return self.also(STARTED, [frame(SUSPEND)])

    @property
    def ready_without_an_order(self):
        return self.also(HELLO, [frame(READY)])

    @property
    def escapes(self):
        """No lie: but nothing of it may reach a terminal as it is."""
        return self.also(STARTED, [log(b"\x1b]0;owned\x07 \xc2\x9b2J \x9b2J\nhorarun: forged")])

    def half_a_frame_and_silence(self, kind, payload):
        if kind != STARTED:
            return frame(kind, payload)
        self.falsify = lambda kind, payload: b""
        return frame(kind, payload)[:-1]


def read_exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def relay(agent, liar, out):
    """Up to the magic as it comes, then frame by frame."""
    seen = b""
    while not seen.endswith(MAGIC):
        byte = agent.stdout.read(1)
        if not byte:
            return
        seen += byte
        out.write(byte)
        out.flush()
    while True:
        length, kind = struct.unpack("<IB", read_exactly(agent.stdout, 5))
        said = liar.falsify(kind, read_exactly(agent.stdout, length))
        for part in [said] if isinstance(said, bytes) else said:
            out.write(part)
        out.flush()


def feed(agent):
    try:
        while data := os.read(0, 65536):
            agent.stdin.write(data)
            agent.stdin.flush()
    except OSError:
        pass
    agent.stdin.close()


def main():
    lie, victim, host, line = sys.argv[1:5]
    if host != victim:
        os.execvp("sh", ["sh", "-c", line])
    agent = subprocess.Popen(["sh", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    threading.Thread(target=feed, args=(agent,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError):
        relay(agent, Liar(lie), sys.stdout.buffer)
    agent.wait()


main()
