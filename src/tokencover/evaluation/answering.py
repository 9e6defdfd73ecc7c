"""Models that answer questions about pictures and clips, and how a run with one is described."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from tokencover.evaluation.results import title_model
from tokencover.evaluation.tasks import Example, Task
from tokencover.prompting import check_kinds, make_inputs

LEADING: Final = 16
"""Values of each weight that tell two models of one name apart."""
PACKAGES: Final = ("tokencover", "torch", "transformers")


@dataclass(frozen=True)
class VisionLanguageModel:
    """A model with its processor.

    Attributes
    ----------
    name : str
        As it was asked for: "pebble", "pebble-clips", "boulder", a folder or a hub name.
    model, processor : Any
        As ``from_pretrained`` returns them; the tokenizer pads on the left.
    options : mapping
        What it was loaded with beside device and dtype: quantization, attn_implementation, ...
    """

    name: str
    model: Any
    processor: Any
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name, with the quantization if there is one."""
        from tokencover.loading import find_quantization

        return title_model(self.name, find_quantization(self.model))

    def check(self, tasks: Iterable[Task]) -> None:
        """Refuse tasks that show what the model does not take."""
        for task in tasks:
            asked = f"{task.name} cannot be asked of {self.name!r}"
            check_kinds(self.processor, task.shows, asked)

    def make_inputs(self, examples: Sequence[Example]) -> Any:
        """A batch of chats with one user turn each, ready for `answer`."""
        prompts = [(example.media, example.question) for example in examples]
        return make_inputs(self.processor, prompts).to(self.model.device)

    def answer(self, inputs: Any, *, max_new_tokens: int = 16) -> list[str]:
        """Answer a batch greedily."""
        with torch.inference_mode():
            tokens = self.model.generate(
                **inputs, max_new_tokens=max_new_tokens, do_sample=False, num_beams=1
            )
        new = tokens[:, inputs["input_ids"].shape[1] :]
        texts: list[str] = self.processor.batch_decode(new, skip_special_tokens=True)
        return [text.strip() for text in texts]


def load_model(
    name: str, *, device: str | None = None, dtype: str | None = None, **options: Any
) -> VisionLanguageModel:
    """Load a model by name; see `tokencover.loading.load` for the options."""
    from tokencover.loading import load  # brings transformers: nothing before needs it

    model, processor = load(name, device=device, dtype=dtype, **options)
    processor.tokenizer.padding_side = "left"
    return VisionLanguageModel(name, model, processor, options)


def describe_run(model: VisionLanguageModel, **settings: Any) -> dict[str, Any]:
    """Model, versions and settings; results of two runs that differ in any of it do not mix.

    Parameters
    ----------
    model : VisionLanguageModel
        The model that is asked.
    **settings
        Whatever else answers depend on.
    """
    from tokencover.loading import describe_loading

    network = model.model
    return {
        "model": {
            "name": model.name,
            "class": type(network).__name__,
            "dtype": str(network.dtype).removeprefix("torch."),
            "device": torch.device(network.device).type,
            "weights": _take_fingerprint(network),
            **describe_loading(network, model.options),
        },
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "settings": settings,
    }


def _take_fingerprint(network: torch.nn.Module) -> str:
    """Of the names, shapes and leading values of all weights: quick, even for a large model."""
    from tokencover.loading import list_stored

    digest = hashlib.sha256()
    for name, weight in network.named_parameters():
        packed = getattr(weight, "quant_state", None)  # 4 bits are packed again later
        digest.update(f"{name} {tuple((packed or weight).shape)}".encode())
        if packed is None:
            for part in list_stored(weight.detach()):
                if not part.is_meta:  # weights that accelerate keeps elsewhere
                    digest.update(part.flatten()[:LEADING].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
