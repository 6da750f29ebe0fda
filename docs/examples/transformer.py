"""A small transformer that learns a language of 64 words, each of which four others may follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from testbed.workloads.base import number
from testbed.workloads.torch_training import TorchTraining

WORDS, LENGTH, BATCH = 64, 64, 8


class Transformer(TorchTraining):
    """A small transformer. Parameters: `steps`, `seed`, and `bf16`: weights of 16 bits."""

    def __init__(self, params: Mapping[str, object]) -> None:
        super().__init__(params)
        self.dtype = torch.bfloat16 if number(params, "bf16", 0, 0, 1, whole=True) else torch.float32

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        self.follows = torch.randint(WORDS, (WORDS, 4))
        layer = nn.TransformerEncoderLayer(96, 4, 384, dropout=0.1, batch_first=True, norm_first=True)
        model = nn.ModuleDict(
            {
                "words": nn.Embedding(WORDS, 96),
                "places": nn.Embedding(LENGTH, 96),
                "layers": nn.TransformerEncoder(layer, 3, enable_nested_tensor=False),
                "head": nn.Linear(96, WORDS),
            }
        ).to(self.dtype)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(self, step: int) -> torch.Tensor:
        text = self.batch(step)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=self.dtype)
        known = self.model["words"](text[:, :-1]) + self.model["places"](torch.arange(LENGTH))
        guessed = self.model["head"](self.model["layers"](known, mask=mask, is_causal=True))
        return cross_entropy(guessed.flatten(0, 1).float(), text[:, 1:].flatten())

    def batch(self, step: int) -> Any:
        """Return sentences that depend on the step alone."""
        dice = torch.Generator().manual_seed(self.seed << 32 | step)
        text = torch.randint(WORDS, (BATCH, 1), generator=dice)
        for turn in torch.randint(4, (LENGTH, BATCH), generator=dice):
            text = torch.cat([text, self.follows[text[:, -1], turn][:, None]], dim=1)
        return text
