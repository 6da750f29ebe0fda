"""Errors between this package and the kernel."""

import os


class BpfError(Exception):
    """A refusal by the kernel or libbpf.

    `what` names what was tried, `errno` is the kernel's answer (0: none was given), `log` the tail of the verifier's
    log, if a program was refused.
    """

    def __init__(self, what: str, errno: int = 0, log: str = "") -> None:
        self.what, self.errno, self.log = what, errno, log
        super().__init__(what, errno, log)

    def __str__(self) -> str:
        reason = f": {os.strerror(self.errno)} (errno {self.errno})" if self.errno else ""
        tail = f"\n{self.log}" if self.log else ""
        return f"{self.what}{reason}{tail}"
