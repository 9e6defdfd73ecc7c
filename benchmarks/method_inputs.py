"""What `benchmarks/methods.py` gives methods to choose from: random tokens of two sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tokencover.budget import LayerCost
from tokencover.methods import View, VisionOutputs, VisionView

WIDTH, WORDS, TOWER = 4096, 10, 1024
CROP, HEADS = 576, 16
SIZES = {576: 64, 2880: 320}
"""K for each N."""
RANK = 64


@dataclass(frozen=True)
class Inputs:
    """Inputs of one row: visual tokens, prompt tokens, features and keys of the vision encoder."""

    visual: Tensor
    prompt: Tensor
    features: Tensor
    keys: Tensor
    queries: Tensor
    attention: Tensor
    text_attention: Tensor
    decoder_keys: Tensor
    budget: int

    @classmethod
    def draw(cls, tokens: int, budget: int, seed: int = 0) -> Inputs:
        """Tokens of rank 64 with 1 % of noise, in crops of 576."""
        generator = torch.Generator().manual_seed(tokens + seed)
        basis = torch.randn(RANK, WIDTH, generator=generator) / math.sqrt(RANK)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        def draw_tokens(count: int) -> Tensor:
            return draw(count, RANK) @ basis + 0.1 * draw(count, WIDTH)

        crops = tokens // CROP
        heads = (crops, HEADS, CROP + 1, TOWER // HEADS)
        return cls(
            visual=draw_tokens(tokens),
            prompt=draw_tokens(WORDS),
            features=draw(crops, CROP + 1, TOWER),
            keys=draw(*heads),
            queries=draw(*heads),
            attention=draw(1, 32, 1, tokens).softmax(-1),
            text_attention=draw(1, 32, WORDS, tokens).softmax(-1),
            decoder_keys=draw(1, 32, tokens, WIDTH // 32),
            budget=budget,
        )

    def to(self, dtype: torch.dtype) -> Inputs:
        """The same with tokens and words of another dtype."""
        return replace(self, visual=self.visual.to(dtype), prompt=self.prompt.to(dtype))

    def read_keys(self, places: Tensor | None) -> Tensor:
        """The decoder's keys of all visual tokens, or as many as there are places."""
        return self.decoder_keys[:, :, : None if places is None else places.shape[-1]]

    def read_rows(self, queries: Tensor) -> Tensor:
        """Attention of the last word, or of as many words as are asked."""
        count = queries.shape[-1]
        return self.attention if count == 1 else self.text_attention[:, :, :count]

    def show(self, block: int = 2, *, tiled: bool = False) -> View:
        """The same as a method sees it before a decoder layer; crops are images, or tiles."""
        count = len(self.visual)
        place = torch.arange(count).unsqueeze(0)
        crop, cell = place // CROP, place % CROP
        words = torch.ones(1, WORDS, dtype=torch.bool)
        after = torch.arange(count, count + WORDS).unsqueeze(0)
        zeros = torch.zeros_like(place)
        side = math.isqrt(CROP)
        tile = (crop - 1).clamp(min=0) if tiled else zeros  # two by two of them
        down, across = tile // 2 * side, tile % 2 * side
        encoded = VisionOutputs(
            features=self.features,
            classes=1,
            num_blocks=24,
            feature_block=22,
            scaling=(TOWER // HEADS) ** -0.5,
            index=crop * (CROP + 1) + 1 + cell,
            queries=lambda block: self.queries,
            keys=lambda block: self.keys,
            project=lambda features: torch.nn.functional.pad(features, (0, WIDTH - TOWER)),
        )
        fields: dict[str, Any] = {
            "layer_idx": block,
            "num_layers": 32,
            "hidden_states": self.visual.unsqueeze(0),
            "mask": place >= 0,
            "prompt": self.prompt.unsqueeze(0),
            "prompt_mask": words,
            "prompt_positions": after,
            "text": self.prompt.unsqueeze(0),
            "text_mask": words,
            "text_positions": after,
            "last": after[:, -1],
            "positions": place,
            "total": torch.tensor([count]),
            "others": torch.tensor([WORDS]),
            "medium": zeros if tiled else crop,
            "frame": crop if tiled else zeros,
            "row": cell // side + down,
            "column": cell % side + across,
            "kind": zeros,
            "video": zeros > 0,
            "keys": lambda block, places=None, *, rotated=False: self.read_keys(places),
            "attention": lambda block, queries: self.read_rows(queries),
            "ahead": lambda blocks, queries: self.attention,
            "norm": lambda states: states,
            "cost": LayerCost(linear=1, quadratic=0),
            "vision": encoded,
        }
        return View(**fields)

    def show_tower(self, block: int) -> VisionView:
        """The view of the crops in a vision-encoder block before any merging."""
        crops, count = self.features.shape[:2]
        side = math.isqrt(CROP)
        every = torch.arange(count).expand(crops, -1)
        return VisionView(
            block=block,
            num_blocks=24,
            hidden_states=self.features,
            classes=1,
            sizes=torch.ones_like(every),
            grid=(side, side),
            crops=(crops,),
            feature_block=22,
            members=every,
            keys=lambda: self.keys,
            attention=lambda: self.tower_attention,
        )

    @cached_property
    def tower_attention(self) -> Tensor:
        """Attention of a block, mean over heads, ``(crops, cells + 1, cells + 1)``."""
        logits = self.queries @ self.keys.mT * (TOWER // HEADS) ** -0.5
        weights: Tensor = logits.softmax(-1).mean(1)
        return weights
