"""Vision encoders whose patches are folded into visual tokens: what methods read of them, by value.

The oracle's attention is what the encoder's own eager attention computed. Which patches make a
visual token, and with what weights, is found by gradients: a token depends on those patches alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.pruning.merging_method import MergePairs
from tests.pruning.test_encoder import Read, encoded_in, views_of
from tests.pruning.test_matrix import built
from tests.pruning.test_prune import fingerprint
from tests.zoo import ZOO
from tests.zoo.entry import ZooEntry
from tests.zoo.oracle import text_model
from tokencover.errors import InputError
from tokencover.families import FAMILIES, Family
from tokencover.families.folding import order_by_windows
from tokencover.methods._shared.vision_tiles import compute_cell_attention
from tokencover.methods.base import View
from tokencover.pruning.prune import prune
from tokencover.pruning.vision.encoder import VISION_ENCODER_TYPES

FOLDING = {
    name: family
    for family in FAMILIES
    for name in ZOO
    if name in family.model_types and family.folding is not None
}


def choose_kinds(entry: ZooEntry) -> list[str]:
    """Images of several sizes, several in a prompt, and videos."""
    videos = "image_and_video" if "image_and_video" in entry.kinds else "video"
    return [kind for kind in ("ragged", "two_images", videos) if kind in entry.telling_kinds]


CASES = [
    pytest.param(ZOO[name], kind, id=f"{name}-{kind}")
    for name in FOLDING
    for kind in choose_kinds(ZOO[name])
]


@dataclass
class EncoderTape:
    """What the encoders of a model did: eager weights by block and call, in the order of calls.

    ``weights[block]`` has ``(rows, heads, n, n)`` for each call of the eager attention, ``leaves``
    what the last block gave in each call of an encoder, ``classes`` how many tokens of a row come
    before its patches.
    """

    classes: int
    weights: dict[int, list[Tensor]] = field(default_factory=dict)
    leaves: list[Tensor] = field(default_factory=list)
    entered: Tensor | None = None


@contextmanager
def taped(model: Any, family: Family, monkeypatch: pytest.MonkeyPatch) -> Iterator[EncoderTape]:
    encoder = model.get_submodule(family.vision_encoders[0])
    kind = VISION_ENCODER_TYPES[encoder.config.model_type]
    blocks = list(encoder.get_submodule(kind.blocks))
    numbers = {id(getattr(block, kind.attention)): number for number, block in enumerate(blocks)}
    tape = EncoderTape(kind.classes)
    home = sys.modules[type(getattr(blocks[0], kind.attention)).__module__]
    original = home.eager_attention_forward

    def attend(module: Any, *args: Any, **kwargs: Any) -> Any:
        output, weights = original(module, *args, **kwargs)
        if id(module) in numbers:
            tape.weights.setdefault(numbers[id(module)], []).append(weights.detach())
        return output, weights

    monkeypatch.setattr(home, "eager_attention_forward", attend)
    # Interpolation mixes what the projector gives; squares are mixed by the projector itself.
    mixes_later = family.name == "LLaVA-OneVision"
    last = model.get_submodule(family.projector) if mixes_later else blocks[-1]

    def cut(_module: Any, _args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple) else output
        leaf = states.detach().requires_grad_()
        tape.leaves.append(leaf)
        return (leaf, *output[1:]) if isinstance(output, tuple) else leaf

    def enter(_module: Any, _args: Any, kwargs: Any) -> None:
        tape.entered = kwargs["inputs_embeds"]

    handles = [
        last.register_forward_hook(cut),
        text_model(model).register_forward_pre_hook(enter, with_kwargs=True),
    ]
    try:
        yield tape
    finally:
        for handle in handles:
            handle.remove()
        monkeypatch.undo()


def compute_shares(tape: EncoderTape, visual: Tensor, exact: bool) -> Tensor:
    """``(visual tokens, tokens of all encoders)``: which patches make each token, and their shares.

    Where shares are not `exact` gradients, those of all patches that matter are equal.
    """
    assert tape.entered is not None
    torch.manual_seed(0)
    probe = torch.randn(tape.entered.shape[-1])
    found = []
    for state in tape.entered[visual]:
        value = state[0] if exact else (state * probe).sum()
        gradients = torch.autograd.grad(value, tape.leaves, retain_graph=True, allow_unused=True)
        flat = [
            torch.zeros(leaf[..., 0].numel()) if each is None else each.flatten(0, -2)
            for each, leaf in zip(gradients, tape.leaves, strict=True)
        ]
        rows = [each if each.dim() == 1 else each[:, 0] if exact else each.abs().sum(-1)
                for each in flat]  # fmt: skip
        share = torch.cat(rows)
        if not exact:
            share = (share > 0).float()
            share = share / share.sum().clamp(min=1)
        found.append(share)
    return torch.stack(found)


def compute_received(tape: EncoderTape, block: int) -> Tensor:
    """``(heads, tokens of all encoders)``: sums over the queries, or the class token's row."""
    flat = []
    for weights in tape.weights[block]:
        rows = weights[:, :, 0] if tape.classes else weights.sum(-2)
        flat.append(rows.transpose(0, 1).flatten(1))
    return torch.cat(flat, dim=1)


def compute_sizes(view: View, shares: Tensor, received: Tensor, whole_crop: int | None) -> Tensor:
    """``(visual tokens,)``: how many patches that are seen lie in the crop of each.

    They are those that matter to its tokens, unless it is known to be a `whole_crop`, of which some
    may be cut away.
    """
    if whole_crop is not None:
        return torch.full((len(shares),), whole_crop)
    sample = torch.arange(len(view.row)).unsqueeze(-1).expand_as(view.row)
    crop = torch.stack([sample, view.medium, view.frame], dim=-1)[view.mask]
    sizes = torch.zeros(len(crop))
    for each in crop.unique(dim=0):
        here = (crop == each).all(-1)
        matter = (shares[here] > 0).any(0) & (received > 0).any(0)
        sizes[here] = matter.sum().float()
    return sizes


@pytest.mark.parametrize(("entry", "kind"), CASES)
def test_rows_are_the_encoders_own_attention_folded(
    entry: ZooEntry, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = built(entry.name, "eager")
    family, inputs = FOLDING[entry.name], entry.inputs(kind)
    exact = family.name == "LLaVA-OneVision"
    with taped(model, family, monkeypatch) as tape:
        model(**inputs)
    visual = entry.visual(inputs)
    shares = compute_shares(tape, visual, exact)
    encoder: Any = model.get_submodule(family.vision_encoders[0])
    depth = len(list(encoder.get_submodule(VISION_ENCODER_TYPES[encoder.config.model_type].blocks)))
    whole_crop = (encoder.config.image_size // encoder.config.patch_size) ** 2 if exact else None
    for attention in ("sdpa", "eager"):
        (view,) = views_of(built(entry.name, attention), inputs, Read(named=tuple(range(depth))))
        encoded = encoded_in(view)
        assert encoded.num_blocks == depth
        assert encoded.feature_block == depth - 1
        there = (encoded.index >= 0)[view.mask]
        assert bool((there == (view.kind == 0)[view.mask]).all())
        for block in range(depth):
            received = compute_received(tape, block)
            expected = received @ shares.T
            if not tape.classes:
                expected = expected / compute_sizes(view, shares, received, whole_crop)
            rows = compute_cell_attention(encoded, block)
            classes = encoded.classes
            whole = torch.nn.functional.pad(rows, (classes, 0)).transpose(0, 1).flatten(1)
            found = whole[:, encoded.index.clamp(min=0)[view.mask]]
            torch.testing.assert_close(found[:, there], expected[:, there], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["qwen2_5_vl", "internvl", "smolvlm", "llava_onevision"])
def test_features_are_the_visual_tokens_and_nothing_is_left(name: str) -> None:
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs("two_images")
    with torch.no_grad():
        plain = model(**inputs).logits
    before = fingerprint(model)
    for stages in ((0,), (0, 2)):
        views = views_of(model, inputs, Read(stages))
        assert fingerprint(model) == before
        first = views[0]
        encoded = encoded_in(first)
        there = encoded.index >= 0
        flat = encoded.features.flatten(0, 1)
        assert torch.equal(flat[encoded.index[there]], first.hidden_states[there])
        assert torch.equal(encoded.project(flat), flat)
        for later in views[1:]:
            assert torch.equal(encoded_in(later).features, encoded.features)
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, plain)


def test_a_picture_of_windows_is_put_in_raster_order_again() -> None:
    assert order_by_windows(3, 5, 2).tolist() == [
        0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["llava_onevision", "kimi_k25", "smolvlm"])
def test_what_is_masked_mixed_or_scaled_cannot_be_merged(name: str) -> None:
    with pytest.raises(InputError, match="masks, scales, reduces or drops patches"):
        prune(built(name), MergePairs(), prompt=torch.zeros(1, 1))
