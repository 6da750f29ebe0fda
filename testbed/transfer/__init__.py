"""Checkpoints on their way between two stores: only what is missing is sent, and only what was verified counts.

May import `testbed.checkpoints`, `testbed.messages`, `testbed.wire` and the errors. Begin with `messages.py` for the
conversation, then `send.py` and `receive.py`. `intake.py` takes the bytes, and bounds how many.
"""

from testbed.transfer.messages import Hello, TransferFailed
from testbed.transfer.receive import CheckpointServer, ReceiveCompleted, ReceiveEvent, ReceiveFailed
from testbed.transfer.send import SENDFILE_BYTES, UNSENT_BYTES, SendResult, send_checkpoint, unacknowledged_bytes

__all__ = [
    "SENDFILE_BYTES",
    "UNSENT_BYTES",
    "CheckpointServer",
    "Hello",
    "ReceiveCompleted",
    "ReceiveEvent",
    "ReceiveFailed",
    "SendResult",
    "TransferFailed",
    "send_checkpoint",
    "unacknowledged_bytes",
]
