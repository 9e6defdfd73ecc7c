"""What our models do beside vLLM's: choose tokens where the vision tower ends, place them right.

They run in the engine, where an error would end it for everyone: a choice that fails becomes evenly
spaced tokens, and is counted and logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from tokencover.families import FAMILIES, Layout, Media
from tokencover.serving.architectures import find_served_model
from tokencover.serving.choice_plan import PicturePlan, load_method
from tokencover.serving.choosing import Selection, choose_tokens, spread_evenly
from tokencover.serving.picture_positions import (
    PlacedPicture,
    PlaceShifts,
    pack_places,
    place_text,
)
from tokencover.serving.picture_tensors import join_pictures, split_pictures
from tokencover.serving.pruned_processor import PLAN_FIELD
from tokencover.serving.serving_metrics import get_metrics
from tokencover.serving.settings import SETTINGS_KEY, ServingSettings
from tokencover.serving.tower_memory import TowerMemory, cut_into_parts

LOGGER = logging.getLogger("vllm.tokencover")
MEGABYTE = 2**20


class PrunedModel:
    """Mixed into vLLM's models; the names of its methods and their parameters are vLLM's."""

    supports_mrope: ClassVar[bool] = True
    config: Any

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        config = vllm_config.model_config.hf_config
        settings = ServingSettings.read(getattr(config, SETTINGS_KEY, None))
        self._served = find_served_model(config.architectures)
        self._family = FAMILIES[self._served.family]
        self._width = vllm_config.model_config.get_inputs_embeds_size()
        self._memory = TowerMemory(settings.tower_megabytes * MEGABYTE)
        get_metrics()  # their files are made now: an error later would end the engine
        longest = vllm_config.scheduler_config.max_num_batched_tokens
        self._encoded_at_once = longest
        self._shifts: PlaceShifts | None = None
        if settings.method.positions == "original":
            self._shifts = PlaceShifts((1, 2) if self._served.several_axes else (0,), longest)

    # ---- pictures -----------------------------------------------------------------------------

    def embed_multimodal(self, **kwargs: Any) -> Any:
        """The kept tokens of each picture, with their places in extra columns."""
        plans = kwargs.pop(PLAN_FIELD, None)
        if plans is None:
            return super().embed_multimodal(**kwargs)  # type: ignore[misc]
        pictures = split_pictures(kwargs)
        layouts, _ = self._family.layouts(Media(self.config, images=kwargs))
        read = [PicturePlan.from_tensor(each) for each in plans]
        outputs = self._encode(pictures, read)
        return [self._prune(*each) for each in zip(outputs, read, layouts, strict=True)]

    def _encode(
        self, pictures: Sequence[Mapping[str, Tensor]], plans: Sequence[PicturePlan]
    ) -> list[Tensor]:
        """What tower and projector make of each picture.

        vLLM fills a step by tokens that are kept, so many more pictures come at once than would
        fit the tower; it gets as many as it would get without pruning.
        """
        found: list[Tensor | None] = [self._memory.find(plan.fingerprint) for plan in plans]
        first: dict[str, int] = {}
        for place, plan in enumerate(plans):
            if found[place] is None:
                # Of pictures that are the same one is encoded; what has no name is itself alone.
                first.setdefault(plan.fingerprint or str(place), place)
        missing = list(first.values())
        get_metrics().remembered.inc(len(plans) - len(missing))
        for part in cut_into_parts([plans[each].tokens for each in missing], self._encoded_at_once):
            places = [missing[each] for each in part]
            joined = join_pictures([pictures[place] for place in places])
            outputs = super().embed_multimodal(**joined)  # type: ignore[misc]
            for place, output in zip(places, outputs, strict=True):
                found[place] = output
                self._memory.keep(plans[place].fingerprint, output)
        return [
            found[first[plan.fingerprint or str(place)]] if output is None else output  # type: ignore[misc]
            for place, (plan, output) in enumerate(zip(plans, found, strict=True))
        ]

    def _prune(self, rows: Tensor, plan: PicturePlan, layout: Layout) -> Tensor:
        """Keep rows; only their first columns are what the decoder begins with (DeepStack)."""
        begin = time.perf_counter()
        states = rows[:, : self._width]
        chosen = self._choose(states, plan, layout)
        short = torch.cat([chosen.states, rows[chosen.kept, self._width :]], dim=-1)
        get_metrics().choosing.observe(time.perf_counter() - begin)
        if self._shifts is None:
            return short
        places = self.find_places(chosen.kept, layout)
        return torch.cat([short, pack_places(places, short)], dim=-1)

    def _choose(self, states: Tensor, plan: PicturePlan, layout: Layout) -> Selection:
        try:
            method = load_method(plan.method)
            words = self._embed_words(plan.words, states)
            chosen = choose_tokens(method, states, words, layout)
            if len(chosen.kept) == plan.kept:
                self._observe(chosen)
                return chosen
            LOGGER.error("%s kept %d of %d tokens", method.name, len(chosen.kept), plan.kept)
        except Exception:  # an error here would end the engine, and every request with it
            LOGGER.exception("choosing failed; %d evenly spaced tokens are kept", plan.kept)
        get_metrics().failed.inc()
        return spread_evenly(states, plan.kept)

    def _observe(self, chosen: Selection) -> None:
        told = chosen.details
        if told.get("rule") == "coupling" and (eta := told.get("coupling")) is not None:
            get_metrics().coupling.observe(eta)

    def _embed_words(self, words: Sequence[int], states: Tensor) -> Tensor:
        if not words:
            return states[:0]
        ids = torch.tensor(words, device=states.device)
        found: Tensor = self.get_language_model().embed_input_ids(ids)  # type: ignore[attr-defined]
        return found

    # ---- positions ----------------------------------------------------------------------------

    def find_places(self, kept: Tensor, layout: Layout) -> Tensor:
        """Where kept tokens lie: ``(k, axes)``, what is added to where their picture begins."""
        if not self._served.several_axes:
            return kept.unsqueeze(-1)
        here = kept.cpu()
        return torch.stack([layout.row[here], layout.column[here]], dim=-1).to(kept.device)

    def get_mrope_input_positions(
        self, input_tokens: Sequence[int], mm_features: Iterable[Any]
    ) -> tuple[Tensor, int]:
        """Positions of a prompt as if its pictures were whole; see `place_text`."""
        pictures = []
        for feature in sorted(mm_features, key=lambda each: each.mm_position.offset):
            plan = PicturePlan.from_tensor(feature.data[PLAN_FIELD].data)
            pictures.append(PlacedPicture(feature.mm_position.offset, plan.kept, plan.advance))
        return place_text(len(input_tokens), pictures)

    def embed_input_ids(
        self,
        input_ids: Tensor,
        multimodal_embeddings: Any = None,
        *,
        is_multimodal: Tensor | None = None,
    ) -> Tensor:
        """Embed the tokens of a step; places of kept tokens are noted for `forward`."""
        if self._shifts is not None:
            given = [] if multimodal_embeddings is None else list(multimodal_embeddings)
            stripped = self._shifts.take_from(given, is_multimodal)
            multimodal_embeddings = None if multimodal_embeddings is None else stripped
        found: Tensor = super().embed_input_ids(  # type: ignore[misc]
            input_ids, multimodal_embeddings, is_multimodal=is_multimodal
        )
        return found

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the decoder on a step, each kept token where it was."""
        if self._shifts is not None and positions.ndim > 1:
            positions = self._shifts.add_to(positions)
            if not self._served.several_axes:
                positions = positions[0]
        return super().forward(  # type: ignore[misc]
            input_ids, positions, intermediate_tensors, inputs_embeds, **kwargs
        )
