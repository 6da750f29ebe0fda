"""A training job with everything that a state can hide in, in memory or on a GPU; what tests of such jobs put back."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from testbed.workloads.torch_training import TorchTraining


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


class Motley(TorchTraining):
    """Tensors of every kind, buffers, tied weights, a scheduler, an average, and all three generators.

    Parameters: `device`, on which it draws its samples and drops some units out, too.
    """

    def build(self) -> Any:
        self.device = torch.device(str(self.given.get("device", "cpu")))
        self.images = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        body = nn.Sequential(nn.BatchNorm2d(8), nn.GELU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(8 * 36, 33))
        model = nn.ModuleDict({"images": self.images, "body": body, "head": nn.Linear(33, 10).bfloat16()})
        model["tied"] = model["head"]
        for name, buffer in {
            "none": torch.zeros(0),
            "one": torch.tensor(1.5, dtype=torch.float64),
            "flags": torch.tensor([True, False, True]),
            "waves": torch.tensor([1 + 2j], dtype=torch.complex64),
            "small": torch.arange(-3, 2, dtype=torch.int8),
            "halves": torch.arange(7).half(),
            "turned": torch.arange(12.0).reshape(3, 4).t(),
        }.items():
            model.register_buffer(name, buffer)
        model = model.to(self.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=self.steps_total + 1)
        self.average = torch.optim.swa_utils.AveragedModel(model["body"])
        return model, optimizer, self.scheduler, self.average

    def loss(self, step: int) -> Any:
        samples = torch.randn(16, 3, 8, 8, device=self.device) + random.random() + np.random.normal()
        hidden = self.model["body"](self.model["images"](samples))
        return self.model["tied"](hidden.bfloat16()).float().square().mean() + samples.mean()

    def step(self) -> None:
        super().step()
        self.scheduler.step()
        self.average.update_parameters(self.model["body"])
