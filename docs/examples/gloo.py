"""A gang that trains: data-parallel SGD over torch.distributed (gloo), one process a rank, each on its own host."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import distributed

from testbed.workloads.base import StateMismatch, Workload, number
from testbed.workloads.rendezvous import own_port

SIOCGIFADDR = 0x8915


class Training(Workload):
    """Linear regression. Every rank draws its own batch; the gradients are averaged, so all ranks hold the same model."""

    step_s = 0.05  # small batches take no time: leave it out where steps really do

    def __init__(self, params: Mapping[str, object]) -> None:
        super().__init__(params)
        self.steps = int(number(params, "steps", 100, 1, 1e6, whole=True))
        self.weights = torch.zeros(0)

    @property
    def steps_total(self) -> int:
        return self.steps

    def begin(self) -> None:
        self.weights = torch.zeros(16)

    def meet(self, states: Sequence[bytes]) -> None:
        if len(set(states)) != 1:
            raise StateMismatch("the ranks hold different models")
        assert self.place is not None
        addresses = self.place.addresses
        os.environ["GLOO_SOCKET_IFNAME"] = interface_of(addresses[self.place.number])
        meeting = f"tcp://{addresses[0]}:{own_port(self.place)}"
        distributed.init_process_group(
            "gloo", init_method=meeting, rank=self.place.number, world_size=len(addresses)
        )
        print(
            "rank", self.place.number, "of", len(addresses), "is there, at step", self.step_number, flush=True
        )

    def step(self) -> None:
        assert self.place is not None
        draw = torch.Generator().manual_seed(self.step_number * 1000 + self.place.number)
        inputs = torch.randn(32, 16, generator=draw)
        errors = inputs @ self.weights - inputs.sum(dim=1)  # the truth: every weight is 1
        gradient = inputs.T @ errors / len(inputs)
        distributed.all_reduce(gradient)
        self.weights -= 0.05 * gradient / distributed.get_world_size()
        self.step_number += 1
        print("step", self.step_number, "loss", f"{float(errors.square().mean()):.6f}", flush=True)

    def save(self, path: Path) -> None:
        path.write_bytes(struct.pack("!q", self.step_number) + self.weights.numpy().tobytes())

    def load(self, path: Path) -> None:
        state = path.read_bytes()
        self.step_number = struct.unpack("!q", state[:8])[0]
        self.weights = torch.frombuffer(bytearray(state[8:]), dtype=torch.float32)

    def verify(self) -> bytes:
        """That of the model: other ranks find out if theirs is another."""
        return hashlib.sha256(self.weights.numpy().tobytes()).digest()


def interface_of(address: str) -> str:
    """The interface of this host that has the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has none
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    raise OSError(f"no interface has {address}")
