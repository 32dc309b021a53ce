"""A way to a host that cannot be trusted: runs the real agent here, and falsifies what it says.

    liar.py LIE VICTIM HOST LINE        as --rsh 'python3 liar.py LIE VICTIM'

Only the way to VICTIM lies; to every other host it passes all through unchanged.
"""
import os
import random
import struct
import subprocess
import sys
import threading

MAGIC = b"\x01HORA-AGENT-1\n"
HELLO, READY, STARTED, OUTPUT, EXIT, GOODBYE, FAILURE, LOG = 1, 3, 4, 5, 7, 8, 9, 10


def frame(kind, payload=b""):
    return struct.pack("<IB", len(payload), kind) + payload


def output(rank, data):
    return frame(OUTPUT, struct.pack("<IB", rank, 1) + data)


def other_rank(payload):
    """The same exit, told of rank 0. Ranks below 24 are one byte behind their name."""
    at = payload.index(b"\x64rank") + 5
    return payload[:at] + b"\x00" + payload[at + 1:]


class Liar:
    """falsify(kind, payload) answers the bytes that go out instead of that frame."""

    def __init__(self, lie):
        self.falsify = getattr(self, lie.replace("-", "_"))

    def exit_of_another_hosts_rank(self, kind, payload):
        return frame(kind, other_rank(payload) if kind == EXIT else payload)

    def also_an_exit_of_another_hosts_rank(self, kind, payload):
        """Its own rank's exit is told, too, so that nothing is missing in the end."""
        return frame(kind, payload) + (frame(kind, other_rank(payload)) if kind == EXIT else b"")

    def output_of_another_hosts_rank(self, kind, payload):
        return (output(0, b"forged\n") if kind == STARTED else b"") + frame(kind, payload)

    def goodbye_without_exits(self, kind, payload):
        return b"" if kind == EXIT else frame(kind, payload)

    def goodbye_at_once(self, kind, payload):
        return frame(kind, payload) + (frame(GOODBYE, b"\xa3\x69survivors\x00\x6dsurvivor_pids\x80\x66killed\x00") if kind == HELLO else b"")

    def output_without_credit(self, kind, payload):
        return frame(kind, payload) + (output(1, b"x" * (1 << 20)) * 600 if kind == STARTED else b"")

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
        out.write(liar.falsify(kind, read_exactly(agent.stdout, length)))
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
    try:
        relay(agent, Liar(lie), sys.stdout.buffer)
    except (EOFError, BrokenPipeError):
        pass
    agent.wait()


main()
