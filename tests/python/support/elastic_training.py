# SPDX-License-Identifier: Apache-2.0
"""What elastic jobs of the tests train, and what happens to their ranks."""

import os
import signal
import time

from support.processes import TIMEOUT_S


def place():
    import hora

    hora.init()
    return hora.rank(), hora.size(), hora.allgather_object(hora.rank())


def place_on_machine():
    import hora

    hora.init()
    return hora.local_rank(), hora.local_size(), hora.cross_rank(), hora.cross_size(), os.environ["HOROVOD_LOCAL_RANK"]


def train(folder, sizes, what):
    """An epoch for each of `sizes`, which lasts until there are that many ranks. In the second one, all call
    what(folder) before they commit. Returns (rank, the sizes at the ends of epochs)."""
    import hora
    from hora import elastic

    @elastic.run
    def loop(state):
        while state.epoch < len(sizes):
            if state.epoch == 1:
                what(folder)
            if hora.allgather_object(hora.size() == sizes[state.epoch])[0]:
                state.seen = [*state.seen, hora.size()]
                state.epoch += 1
            time.sleep(0.05)  # a step of training
            assert time.monotonic() < deadline, f"{hora.size()} ranks in epoch {state.epoch} of {sizes}"
            state.commit()
        return hora.rank(), state.seen

    hora.init()
    deadline = time.monotonic() + TIMEOUT_S
    return loop(elastic.SimpleState(epoch=0, seen=[]))


def once(folder, name):
    """Whether this is the first process that asks."""
    try:
        os.close(os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def kill_rank_1(folder):
    import hora

    if hora.rank() == 1 and once(folder, "killed"):
        os.kill(os.getpid(), signal.SIGKILL)


def raise_on_rank_1(folder):
    import hora

    if hora.rank() == 1 and once(folder, "raised"):
        raise ValueError("bad luck")


def fail(rank):
    import hora

    hora.init()
    if hora.rank() == rank:
        raise ValueError("bad luck")
    hora.allgather_object(1)


def sleep_long(folder):
    """Until it is ended; a file in the folder says that it has begun."""
    with open(os.path.join(folder, f"{os.getpid()}.pid"), "w"):
        pass
    time.sleep(600)
