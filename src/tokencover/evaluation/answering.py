"""Models that answer questions about images and videos, and the description of a run."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from tokencover.evaluation.tasks import Example, Task
from tokencover.prompting import check_kinds, make_inputs

LEADING: Final = 16
"""Values of each weight that go into the fingerprint of a model."""
PACKAGES: Final = ("tokencover", "torch", "transformers")


@dataclass(frozen=True)
class VisionLanguageModel:
    """A model with its processor.

    Attributes
    ----------
    name : str
        The name it was loaded by: a test model, a local path, or a Hugging Face Hub ID.
    model, processor : Any
        As ``from_pretrained`` returns them; the tokenizer pads on the left.
    options : mapping
        Loading options besides device and dtype: quantization, attn_implementation, ...
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
        """Raise `InputError` for tasks with inputs that the model does not support."""
        for task in tasks:
            purpose = f"{task.name} cannot be evaluated on {self.name!r}"
            check_kinds(self.processor, task.shows, purpose)

    def make_inputs(self, examples: Sequence[Example]) -> Any:
        """Build a batch of chats with one user turn each, ready for `answer`."""
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
    from tokencover.loading import load  # imports transformers

    model, processor = load(name, device=device, dtype=dtype, **options)
    processor.tokenizer.padding_side = "left"
    return VisionLanguageModel(name, model, processor, options)


def title_model(name: str, quantization: str | None) -> str:
    """A model's name for tables, with the quantization of its weights if there is one."""
    return name if quantization is None else f"{name} ({quantization})"


def describe_run(model: VisionLanguageModel, **settings: Any) -> dict[str, Any]:
    """Return model, versions and `settings`: everything that answers depend on.

    Results of runs that differ in them do not mix.
    """
    from tokencover.loading import describe_loading

    network = model.model
    return {
        "model": {
            "name": model.name,
            "class": type(network).__name__,
            "dtype": str(network.dtype).removeprefix("torch."),
            "device": torch.device(network.device).type,
            "weights": _compute_fingerprint(network),
            **describe_loading(network, model.options),
        },
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "settings": settings,
    }


def _compute_fingerprint(network: torch.nn.Module) -> str:
    """Hash names, shapes and leading values of all weights: quick, even for a large model."""
    from tokencover.loading import list_stored

    digest = hashlib.sha256()
    for name, weight in network.named_parameters():
        packed = getattr(weight, "quant_state", None)  # 4-bit weights are packed again later
        digest.update(f"{name} {tuple((packed or weight).shape)}".encode())
        if packed is None:
            for part in list_stored(weight.detach()):
                if not part.is_meta:  # weights that accelerate offloads
                    digest.update(part.flatten()[:LEADING].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
