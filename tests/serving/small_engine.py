"""What an engine does with a prompt, on a model of transformers: short prompts, in chunks.

It knows positions as vLLM does: those of the whole prompt when the request comes, and the places of
kept tokens only as columns of their states, chunk by chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from tests.zoo.entry import Inputs, ZooEntry
from tokencover.families import FAMILIES, Layout, Media
from tokencover.methods import to_json
from tokencover.serving.images import (
    PlacedImage,
    PositionOffsets,
    compute_text_positions,
    pack_offsets,
)
from tokencover.serving.selection import SelectionPlan, decode_method, select_tokens
from tokencover.serving.supported import ServedModel


@dataclass(frozen=True)
class Served:
    """What came of one prompt.

    Attributes
    ----------
    logits : Tensor
        ``(v,)``, after the last token.
    kept : list of int
        Among all visual tokens of the prompt.
    next_position : int
        Of the first generated token.
    """

    logits: Tensor
    kept: list[int]
    next_position: int


def embed(model: PreTrainedModel, inputs: Inputs) -> Tensor:
    """What the decoder of the whole model gets: ``(s, d)``."""
    found: list[Tensor] = []
    decoder = model.get_submodule("model.language_model")

    def note(module: Any, args: Any, kwargs: Any) -> None:
        found.append(kwargs["inputs_embeds"][0])

    hook = decoder.register_forward_pre_hook(note, with_kwargs=True)
    try:
        model(**inputs)
    finally:
        hook.remove()
    return found[0]


def compute_offsets(served: ServedModel, kept: Tensor, layout: Layout) -> Tensor:
    if not served.several_axes:
        return kept.unsqueeze(-1)
    return torch.stack([layout.row[kept], layout.column[kept]], -1)


@torch.no_grad()
def serve(entry: ZooEntry, served: ServedModel, inputs: Inputs, method: Any, chunk: int) -> Served:
    """Answer one prompt with images."""
    model = entry.build()
    states, ids = embed(model, inputs), inputs["input_ids"][0]
    images = {name: inputs[name] for name in inputs if name.startswith(("pixel", "image_"))}
    layouts, _ = FAMILIES[served.family].layouts(Media(model.config, images=images))
    words = tuple(ids[entry.user_words(inputs)[0]].tolist())
    plan = SelectionPlan.read(SelectionPlan(to_json(method), words).text)
    spoken = model.get_input_embeddings()(torch.tensor(plan.prompt_ids))
    shifts = PositionOffsets((1, 2) if served.several_axes else (0,))
    rows, visual, pictures, kept_of_all = [], [], [], []
    place = offset = seen = 0
    for span, layout in zip(entry.spans(inputs), layouts, strict=True):
        first = int(span.positions[0])
        text = states[place:first]
        advance = max(layout.shape) if served.several_axes else len(layout)
        picture = plan.of_image(layout, advance=advance)
        chosen = select_tokens(
            decode_method(picture.method), states[span.positions], spoken, layout
        )
        assert len(chosen.kept) == picture.kept
        kept_of_all += (chosen.kept + seen).tolist()
        places = pack_offsets(compute_offsets(served, chosen.kept, layout), chosen.hidden_states)
        rows += [widen(text, shifts.columns), torch.cat([chosen.hidden_states, places], -1)]
        visual += [False] * len(text) + [True] * picture.kept
        pictures.append(PlacedImage(offset + len(text), picture.kept, picture.advance))
        offset += len(text) + picture.kept
        place, seen = first + len(layout), seen + len(layout)
    rows.append(widen(states[place:], shifts.columns))
    visual += [False] * (len(states) - place)
    positions, delta = compute_text_positions(len(visual), pictures)
    logits = run_in_chunks(
        model, torch.cat(rows), torch.tensor(visual), positions, shifts, chunk, method, served
    )
    return Served(logits, kept_of_all, len(visual) + delta)


def widen(states: Tensor, columns: int) -> Tensor:
    return torch.nn.functional.pad(states, (0, columns))


def run_in_chunks(
    model: Any,
    rows: Tensor,
    visual: Tensor,
    positions: Tensor,
    shifts: PositionOffsets,
    chunk: int,
    method: Any,
    served: ServedModel,
) -> Tensor:
    cache, width = DynamicCache(), rows.shape[1] - shifts.columns
    for start in range(0, len(rows), chunk):
        part, here = rows[start : start + chunk], visual[start : start + chunk]
        shown = part[:, :width].clone()
        found = [part[here]] if bool(here.any()) else []
        stripped = shifts.strip(found, here if found else None)
        if found:
            shown[here] = stripped[0]
        placed = shifts.add_to(positions[:, start : start + chunk])
        if method.positions == "reindex":
            placed = torch.arange(start, start + len(part)).expand(3, -1)
        out = model.model.language_model(
            inputs_embeds=shown.unsqueeze(0),
            position_ids=placed.unsqueeze(1) if served.several_axes else placed[:1],
            past_key_values=cache,
        )
    found_logits: Tensor = model.lm_head(out.last_hidden_state[0, -1])
    return found_logits
