"""Slow and obvious references for pruning and for decoding.

Where all blocks are attention nothing is removed. A dropped token stays in the sequence, but from
the pruning block on no other token may attend to it, so at the kept positions every value is what
it would be if the token had been taken out and the others had kept their positions. Beside that
every block sees what the model itself lets it see: windows, and tokens of an image that see each
other, are the model's own.

A block of linear attention or a convolution has no columns to hide. There every row is computed
alone, without padding or cache, and the states of dropped tokens are taken out of it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from .entry import Inputs

RECURRENT = {"linear_attention", "conv"}
"""What transformers calls blocks that take in one token after the other."""


def base_model(model: PreTrainedModel) -> Any:
    """Find the part of a model that encodes images; Llama 4 does it all itself."""
    return getattr(model, "model", model)


def text_model(model: PreTrainedModel) -> nn.Module:
    """Find the decoder of a vision-language model of the zoo."""
    base = base_model(model)
    found: nn.Module = base.text_model if hasattr(base, "text_model") else base.language_model
    return found.get_submodule("model") if base is model else found


def decoder_blocks(model: PreTrainedModel) -> Sequence[nn.Module]:
    """Give the decoder's blocks in order."""
    return list(text_model(model).get_submodule("layers").children())


def pooled(output: Any) -> Any:
    """The features that make visual tokens; the first of several where blocks get one each."""
    if output.pooler_output is not None:
        return output.pooler_output
    if hasattr(output, "deepstack_features"):  # Granite 4 Vision
        return output.deepstack_features[0][1]
    return output.last_hidden_state  # Llama 4


def blocked_forward(
    model: PreTrainedModel, inputs: Inputs, dropped: Tensor, before_block: int
) -> Tensor:
    """Give the logits with ``dropped`` taken away before block ``before_block``.

    Parameters
    ----------
    model
        A model of the zoo, under eager or sdpa attention.
    inputs
        What its forward takes, with an attention mask.
    dropped
        Mask ``(batch, length)``. Logits at these positions, and at padding, mean nothing.
    before_block
        Index of the first decoder layer that does not see the dropped tokens.

    Returns
    -------
    Tensor
        Logits ``(batch, length, vocabulary)``.
    """
    return blocked_forward_schedule(model, inputs, {before_block: dropped})


def blocked_forward_schedule(
    model: PreTrainedModel, inputs: Inputs, dropped_before: dict[int, Tensor]
) -> Tensor:
    """Give the logits with tokens taken away before several blocks, each on top of the last."""
    if RECURRENT & set(block_kinds(model)):
        return deleting_forward(model, inputs, dropped_before)
    real = inputs["attention_mask"].bool()
    gone = torch.zeros_like(real)
    left = []
    for index, _ in enumerate(decoder_blocks(model)):
        gone = gone | dropped_before.get(index, torch.zeros_like(real))
        left.append(real & ~gone)
    with torch.no_grad(), _blocked_columns(model, left):
        logits: Tensor = model(**inputs, use_cache=False).logits
    return logits


def block_kinds(model: PreTrainedModel) -> list[str]:
    """Whether each block is attention, linear attention or a convolution."""
    blocks: Any = decoder_blocks(model)
    kinds: Any = getattr(text_model(model).config, "layer_types", None)
    return list(kinds or ["full_attention"] * len(blocks))


def deleting_forward(
    model: PreTrainedModel, inputs: Inputs, dropped_before: dict[int, Tensor]
) -> Tensor:
    """Give the logits by running the blocks one by one on each row, its dropped tokens deleted."""
    decoder: Any = text_model(model)
    norm = decoder.norm if hasattr(decoder, "norm") else decoder.embedding_norm
    embedded, rotations, masks = record_layers(model, inputs)
    logits = torch.zeros(*embedded.shape[:2], model.config.get_text_config().vocab_size)
    for row, real in enumerate(inputs["attention_mask"].bool()):
        places = real.nonzero().squeeze(-1)  # where the tokens that are left were at first
        states = embedded[row, places]
        for index, kind in enumerate(block_kinds(model)):
            if index in dropped_before:
                stays = ~dropped_before[index][row, places]
                places, states = places[stays], states[stays]
            mask, rotation, own = None, rotations[index], masks[index]
            if kind not in RECURRENT:
                everything = torch.ones(1, len(places), dtype=torch.bool)
                if own is not None:
                    own = own[row % len(own)][None, :, places][..., places]
                mask = additive_mask(everything, model.dtype, own)
            if rotation is not None:  # convolutions of LFM3 have none
                rotation = tuple(table[row % len(table), places][None] for table in rotation)
            with torch.no_grad():
                states = decoder.layers[index](
                    states[None], attention_mask=mask, position_embeddings=rotation
                )[0]
        with torch.no_grad():
            logits[row, places] = model.lm_head(norm(states))
    return logits


def record_layers(model: PreTrainedModel, inputs: Inputs) -> tuple[Tensor, list[Any], list[Any]]:
    """The embeddings that reach the first block, and the rotation and mask of every block."""
    seen: list[Any] = []

    def note(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        seen.append((args[0], kwargs["position_embeddings"], kwargs["attention_mask"]))

    blocks = decoder_blocks(model)
    handles = [block.register_forward_pre_hook(note, with_kwargs=True) for block in blocks]
    try:
        with torch.no_grad():
            model(**inputs, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    states, rotations, masks = zip(*seen, strict=True)
    return states[0], list(rotations), list(masks)


def additive_mask(visible: Tensor, dtype: torch.dtype, own: Tensor | None = None) -> Tensor:
    """Build a mask ``(batch, 1, length, length)`` from causality and the visible columns.

    Instead of causality, what the model's own mask says. Every row sees itself, dropped or padded
    or not: a softmax over nothing would be NaN, and what such a row computes is seen by no other.
    """
    length = visible.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    if own is not None:
        seen = own[:, 0] if own.dtype == torch.bool else own[:, 0] == 0
    allowed = (seen & visible[:, None, :]) | torch.eye(length, dtype=torch.bool)
    zeros = torch.zeros(allowed.shape, dtype=dtype)
    return zeros.masked_fill(~allowed, float("-inf"))[:, None]


@contextmanager
def _blocked_columns(model: PreTrainedModel, left: Sequence[Tensor]) -> Iterator[None]:
    handles = []
    for block, visible in zip(decoder_blocks(model), left, strict=True):

        def hand_over(
            _: nn.Module, args: Any, kwargs: dict[str, Any], visible: Tensor = visible
        ) -> tuple[Any, dict[str, Any]]:
            mask = additive_mask(visible, model.dtype, kwargs["attention_mask"])
            return args, {**kwargs, "attention_mask": mask}

        handles.append(block.register_forward_pre_hook(hand_over, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def extended(inputs: Inputs, generated: Tensor) -> Inputs:
    """Append generated tokens ``(batch, steps)`` to left-padded inputs."""
    # Gemma 3 marks images with 1, PaliGemma what follows the prompt.
    marks = inputs.get("token_type_ids")
    follows = 0 if marks is None else 1 - int(marks.max())
    more = {
        "input_ids": generated,
        "attention_mask": torch.ones_like(generated),
        "mm_token_type_ids": torch.zeros_like(generated, dtype=torch.int),
        "moe_mm_token_type_ids": torch.zeros_like(generated, dtype=torch.int),
        "token_type_ids": torch.full_like(generated, follows),
    }
    longer = {name: torch.cat([inputs[name], more[name]], 1) for name in more if name in inputs}
    return {**inputs, **longer}


def recompute_decode(
    model: PreTrainedModel,
    inputs: Inputs,
    generated: Tensor,
    dropped: Tensor | None = None,
    before_block: int = 0,
) -> Tensor:
    """Give the logits of every decoding step by computing everything again, without a cache.

    Parameters
    ----------
    model, inputs
        As for :func:`blocked_forward`; the inputs are padded on the left.
    generated
        The continuation ``(batch, steps)``.
    dropped, before_block
        What pruning took from the prompt, None for nothing.

    Returns
    -------
    Tensor
        Logits ``(batch, steps + 1, vocabulary)``: those after the prompt, then after each token.
    """
    longer = extended(inputs, generated)
    gone = torch.zeros_like(longer["attention_mask"], dtype=torch.bool)
    if dropped is not None:
        gone[:, : dropped.shape[1]] = dropped
    return blocked_forward(model, longer, gone, before_block)[:, -generated.shape[1] - 1 :]


def recompute_greedy(
    model: PreTrainedModel,
    inputs: Inputs,
    steps: int,
    dropped: Tensor | None = None,
    before_block: int = 0,
) -> Tensor:
    """Continue left-padded inputs greedily by ``steps`` tokens, computing everything each time."""
    generated = inputs["input_ids"][:, :0]
    for _ in range(steps):
        last = recompute_decode(model, inputs, generated, dropped, before_block)[:, -1:]
        generated = torch.cat([generated, best_words(model, last)], 1)
    return generated


def best_words(model: PreTrainedModel, logits: Tensor) -> Tensor:
    """The likeliest tokens of those that may be generated.

    If each word of a text is the best one after those before it, greedy recomputation gives that
    text: one pass over all of it tells what `recompute_greedy` needs a pass for each word for.
    """
    allowed = logits.clone()
    allowed[..., model.generation_config.suppress_tokens] = float("-inf")
    return allowed.argmax(-1)
