"""Boulder while it is trained: the stock model, with a LoRA on top of its decoder.

What is trained is the projector and the LoRA.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save
from torch import Tensor

from tokencover.files import write_atomically
from tokencover_models.boulder.model import DOWN, UP, assemble, merge_low_rank, read_base_model
from tokencover_models.pebble import load_pebble
from tokencover_models.pebble.model import MODEL_WIDTH, PICTURE_WORDS, VISION_FEATURE_LAYER

ATTENTION_RANK: Final = 32
MLP_RANK: Final = 16
MLP_PARTS: Final = ("gate_proj", "up_proj", "down_proj")
ATTENTION_PARTS: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
TOWER: Final = "model.vision_tower."
PROJECTOR: Final = "model.multi_modal_projector."
HALVES: Final = {".lora_A.default.weight": DOWN, ".lora_B.default.weight": UP}
"""What peft calls the halves of a low-rank change, and what the checkpoint calls them."""


@dataclass(frozen=True)
class Boulder:
    """The model while it is trained and measured.

    Attributes
    ----------
    llava
        The stock model; its decoder carries the LoRA.
    lora
        The same decoder as `peft` sees it.
    tokenizer
        Of the language model.
    """

    llava: Any
    lora: Any
    tokenizer: Any

    def average_words(self, texts: Sequence[str]) -> Tensor:
        """The mean of the base model's vectors of each text's tokens, shape (texts, width)."""
        table: Tensor = self.llava.get_input_embeddings().weight.detach()
        spaced = [f" {text}" for text in texts]
        tokens = self.tokenizer(spaced, add_special_tokens=False).input_ids
        return torch.stack([table[each].mean(0) for each in tokens])

    def learned(self) -> dict[str, Tensor]:
        """What is trained, by name."""
        named = dict(self.llava.named_parameters())
        return {name: tensor for name, tensor in named.items() if tensor.requires_grad}

    def save(self, path: Path, **more: Any) -> None:
        """Write what was learned, and whatever else a run needs to go on."""
        learned = {name: tensor.detach() for name, tensor in self.learned().items()}
        write_atomically(path, lambda file: torch.save({"learned": learned, **more}, file))

    def load(self, path: Path) -> dict[str, Any]:
        """Read what `save` wrote."""
        state: dict[str, Any] = torch.load(path, weights_only=True)
        own = self.learned()
        with torch.no_grad():
            for name, tensor in state["learned"].items():
                own[name].copy_(tensor)
        return state

    def publish(self, path: Path) -> None:
        """Write what `tokencover.load_boulder` reads: encoder, projector and LoRA in float16."""
        tower = {
            name: tensor
            for name, tensor in self.llava.state_dict().items()
            if name.startswith(TOWER)
        }
        named = {**tower, **self.learned()}
        for theirs, ours in HALVES.items():
            named = {name.replace(theirs, ours): tensor for name, tensor in named.items()}
        halved = {name: tensor.detach().half().contiguous() for name, tensor in named.items()}
        write_atomically(path, save(halved))


def prepare() -> Boulder:
    """Assemble vision encoder, a new projector and the base model; the LoRA starts as zero."""
    torch.manual_seed(1)
    base = read_base_model()
    tokenizer = base.make_tokenizer()
    pebble, _ = load_pebble()
    tower = {TOWER + name: each for name, each in pebble.model.vision_tower.state_dict().items()}
    weights = {
        **merge_low_rank(base.weights, {}),
        **tower,
        **_draw_projector(base.config.hidden_size),
    }
    llava: Any = assemble(base, weights, tokenizer)
    llava.requires_grad_(False)
    lora = get_peft_model(
        llava.model.language_model,
        LoraConfig(
            r=ATTENTION_RANK,
            lora_alpha=ATTENTION_RANK,
            rank_pattern=dict.fromkeys(MLP_PARTS, MLP_RANK),
            alpha_pattern=dict.fromkeys(MLP_PARTS, MLP_RANK),
            target_modules=[*ATTENTION_PARTS, *MLP_PARTS],
        ),
    )
    llava.model.multi_modal_projector.requires_grad_(True)
    return Boulder(llava, lora, tokenizer)


def _draw_projector(width: int) -> dict[str, Tensor]:
    """Two linear layers with torch's own random weights."""
    layers = {
        "linear_1": torch.nn.Linear(MODEL_WIDTH, width),
        "linear_2": torch.nn.Linear(width, width),
    }
    return {
        f"{PROJECTOR}{layer}.{name}": tensor.detach()
        for layer, module in layers.items()
        for name, tensor in module.named_parameters()
    }


def list_word_vectors(boulder: Boulder) -> tuple[Tensor, Tensor]:
    """The base model's vectors of pebble's words, and what these have in common.

    Words of several tokens get the mean of these.

    Returns
    -------
    words
        Shape (words, width), without what they share: a patch that is a sum of words would
        otherwise hold it several times.
    shared
        Shape (width,).
    """
    words = boulder.average_words([re.sub(r"[<>-]", " ", word).strip() for word in PICTURE_WORDS])
    shared = words.mean(0)
    return words - shared, shared


def see(llava: Any, pixels: Tensor) -> Tensor:
    """Features of all patches, shape (images, 576, width of the vision encoder)."""
    states = llava.model.vision_tower(pixels, output_hidden_states=True).hidden_states
    features: Tensor = states[VISION_FEATURE_LAYER][:, 1:]
    return features
