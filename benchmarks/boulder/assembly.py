"""Boulder: pebble's tower and a language model that others pretrained, in one stock LLaVA.

What is trained is the projector between them and low-rank changes (LoRA) of the language model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import (
    AutoTokenizer,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

from tokencover.files import write_atomically
from tokencover.pebble import load_pebble
from tokencover.pebble.data import PICTURE_TOKENS
from tokencover.pebble.model import PICTURE_WORDS, VISION_FEATURE_LAYER

# A token of the base model's code training that no question holds stands for the picture, so that
# its table of words keeps its size.
IMAGE_TOKEN: Final = "<empty_output>"
ATTENTION_RANK: Final = 32
MLP_RANK: Final = 16
MLP_PARTS: Final = ("gate_proj", "up_proj", "down_proj")
ATTENTION_PARTS: Final = ("q_proj", "k_proj", "v_proj", "o_proj")


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

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text; digits stand without the space that would cost a token."""
        return tuple(self.tokenizer(re.sub(r" (\d)", r"\1", text)).input_ids)

    def encode_answer(self, answer: str) -> int:
        """The one token of an answer."""
        (token,) = self.encode(f" {answer}")
        return token

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


def assemble(base: Path) -> Boulder:
    """Put tower, a new projector and the base model together; the LoRA starts without effect.

    Parameters
    ----------
    base
        Folder that `boulder.base_weights` wrote.
    """
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    language: Any = LlamaForCausalLM.from_pretrained(
        base, local_files_only=True, dtype=torch.float32
    )
    pebble, _ = load_pebble()
    config = LlavaConfig(
        vision_config=pebble.config.vision_config,
        text_config=language.config,
        image_token_index=tokenizer.vocab[IMAGE_TOKEN],
        image_seq_length=PICTURE_TOKENS,
        vision_feature_layer=VISION_FEATURE_LAYER,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )
    llava: Any = LlavaForConditionalGeneration(config)
    llava.model.vision_tower.load_state_dict(pebble.model.vision_tower.state_dict())
    llava.model.language_model.load_state_dict(language.model.state_dict())
    llava.tie_weights()
    llava.eval().requires_grad_(False)
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
    table: Tensor = boulder.llava.get_input_embeddings().weight.detach()
    vectors = [
        table[list(boulder.encode(" " + re.sub(r"[<>-]", " ", word).strip()))].mean(0)
        for word in PICTURE_WORDS
    ]
    words = torch.stack(vectors)
    shared = words.mean(0)
    return words - shared, shared


def see(llava: Any, pixels: Tensor) -> Tensor:
    """Features of all patches, shape (pictures, 576, width of the tower)."""
    states = llava.model.vision_tower(pixels, output_hidden_states=True).hidden_states
    features: Tensor = states[VISION_FEATURE_LAYER][:, 1:]
    return features
