# SPDX-License-Identifier: Apache-2.0
"""`python engine_host_shell.py SOCKET HOST COMMAND-LINE`: what horarun calls instead of ssh to reach a host that is
a process of an engine. Passes its input and output to the driver (hora.engine_hosts), and exits with the code of the
command.

It is run by its path, because nothing else of the package is needed.
"""

import array
import socket
import sys


def main() -> None:
    """Runs a command on a host of an engine: argv is the socket of the driver, the host and the command line."""
    name, host, line = sys.argv[1:4]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as driver:
        driver.connect("\0" + name)
        streams = array.array("i", [0, 1, 2])
        driver.sendmsg([host.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        for begin in range(0, len(line), 32768):
            driver.send(line[begin : begin + 32768].encode())
        driver.shutdown(socket.SHUT_WR)
        answer = driver.recv(4096).decode() or "255 the driver has ended"
    status, _, text = answer.partition(" ")
    if text:
        print(text, file=sys.stderr)
    sys.exit(int(status))


if __name__ == "__main__":
    main()
