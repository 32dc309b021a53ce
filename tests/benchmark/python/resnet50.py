# SPDX-License-Identifier: Apache-2.0
"""The shapes of ResNet-50's 161 parameter tensors (25.6 million numbers), from its definition: a
7 x 7 stem, four stages of 3, 4, 6 and 3 bottlenecks, a classifier of 1000."""


def shapes():
    found = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            found += [
                (width, channels, 1, 1),
                (width,),
                (width,),
                (width, width, 3, 3),
                (width,),
                (width,),
                (4 * width, width, 1, 1),
                (4 * width,),
                (4 * width,),
            ]
            if block == 0:
                found += [(4 * width, channels, 1, 1), (4 * width,), (4 * width,)]
            channels = 4 * width
    return [*found, (1000, channels), (1000,)]
