"""The errors that a decoder can raise over bytes that another process wrote.

msgspec raises more than its own errors. `except msgspec.MsgspecError` around a decoder lets one wrong byte of a text,
or brackets nested a thousand deep, through to the caller.
"""

from __future__ import annotations

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
