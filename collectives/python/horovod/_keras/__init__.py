# SPDX-License-Identifier: Apache-2.0
"""What horovod.keras and horovod.tensorflow.keras share. Nothing here imports a framework by
itself: the Keras that a script uses is handed in, and its backend is asked for when needed."""
