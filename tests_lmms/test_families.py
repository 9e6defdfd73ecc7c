"""A tiny model of every family answers a request of lmms-eval, as it is and pruned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import BatchFeature

from tests.zoo import ZOO, ZooEntry
from tokencover.evaluation import VisionLanguageModel
from tokencover.evaluation.lmms.chat_model import PrunedChatModel
from tokencover.methods import FarthestOnly
from tokencover.pruning import prune

LENGTH, KEPT = 2, 3
MIXED_FAMILIES = ("qwen2_vl", "video_llava", "llava_onevision")
DOCUMENT = {"question": "what is it ?", "picture": Image.new("RGB", (8, 8))}


class HandmadeProcessor:
    """Gives a family's hand-made inputs: its own processor wants files, or torchvision."""

    def __init__(self, entry: ZooEntry) -> None:
        self._sample = entry.samples("single")[0]
        self._entry = entry
        self.tokenizer = SimpleNamespace(padding_side="left")
        self.image_processor = object()

    def apply_chat_template(self, turns: Any, add_generation_prompt: bool) -> str:
        ((media, words),) = [turn["content"] for turn in turns]
        assert media == {"type": "image"}
        return str(words["text"])

    def __call__(self, text: list[str], images: Any, **settings: Any) -> BatchFeature:
        assert text == [DOCUMENT["question"]] * len(text)
        assert [len(each) for each in images] == [1] * len(text)
        return BatchFeature(self._entry.collate([self._sample] * len(text)))

    def batch_decode(self, ids: torch.Tensor, skip_special_tokens: bool) -> list[str]:
        return [" ".join(map(str, row)) for row in ids.tolist()]


def ask(entry: ZooEntry, model: VisionLanguageModel, **arguments: Any) -> list[str]:
    chat = PrunedChatModel(model=model, batch_size=2, prompt_words="turn", **arguments)
    chat.task_dict = {"t": {"test": [DOCUMENT]}}

    def write_messages(document: Any) -> list[dict[str, Any]]:
        picture = {"type": "image", "url": document["picture"]}
        words = {"type": "text", "text": document["question"]}
        return [{"role": "user", "content": [picture, words]}]

    settings = {"max_new_tokens": LENGTH}
    request = SimpleNamespace(args=("", write_messages, settings, 0, "t", "test"))
    return chat.generate_until([request, request])


@pytest.mark.parametrize("name", sorted(ZOO))
def test_it_answers(name: str) -> None:
    entry = ZOO[name]
    network: Any = entry.build(layers=2)
    processor = HandmadeProcessor(entry)
    model = VisionLanguageModel(name, network, processor)
    inputs = entry.collate(entry.samples("single")[:1])
    size = inputs["input_ids"].shape[1]
    options: dict[str, Any] = {"max_new_tokens": LENGTH, "do_sample": False}
    with torch.inference_mode():
        plain = network.generate(**inputs, **options)[0, size:].tolist()
        with prune(network, FarthestOnly(KEPT)):
            pruned = network.generate(**inputs, **options)[0, size:].tolist()
    assert ask(entry, model) == [" ".join(map(str, plain))] * 2
    found = ask(entry, model, method="farthest", budget=KEPT)
    assert found == [" ".join(map(str, pruned))] * 2


class MixedProcessor(HandmadeProcessor):
    """Gives an image's inputs to the question "0", a video's to the question "1"."""

    def __init__(self, entry: ZooEntry) -> None:
        super().__init__(entry)
        self.samples = [entry.samples(kind)[0] for kind in ("single", "video")]
        self.video_processor = object()
        self.batches: list[list[str]] = []

    def apply_chat_template(self, turns: Any, add_generation_prompt: bool) -> str:
        ((media, words),) = [turn["content"] for turn in turns]
        assert media["type"] == ("image", "video")[int(words["text"])]
        return str(words["text"])

    def __call__(self, text: list[str], images: Any, **settings: Any) -> BatchFeature:
        assert [len(each) for each in images] == [int(each == "0") for each in text]
        assert len(settings["videos"]) == text.count("1")
        self.batches.append(text)
        return BatchFeature(self._entry.collate([self.samples[int(each)] for each in text]))


@pytest.mark.parametrize("name", MIXED_FAMILIES)
def test_pictures_and_videos_are_answered_in_one_batch(name: str) -> None:
    entry = ZOO[name]
    network: Any = entry.build(layers=2)
    processor = MixedProcessor(entry)
    chat = PrunedChatModel(
        model=VisionLanguageModel(name, network, processor),
        method="farthest", budget=KEPT, batch_size=4, prompt_words="turn",
    )  # fmt: skip
    chat.task_dict = {"t": {"test": ["0", "1", "1", "0", "1"]}}

    def write_messages(question: str) -> list[dict[str, Any]]:
        kind, shown = [("image", DOCUMENT["picture"]), ("video", [DOCUMENT["picture"]] * 2)][
            int(question)
        ]
        content = [{"type": kind, "url": shown}, {"type": "text", "text": question}]
        return [{"role": "user", "content": content}]

    settings = {"max_new_tokens": LENGTH}
    requests = [
        SimpleNamespace(args=("", write_messages, settings, number, "t", "test"))
        for number in range(4)
    ]
    found = chat.generate_until(requests)
    assert processor.batches == [["0", "1", "1", "0"]]
    inputs = entry.collate([processor.samples[place] for place in (0, 1, 1, 0)])
    with torch.inference_mode(), prune(network, FarthestOnly(KEPT)):
        tokens = network.generate(**inputs, max_new_tokens=LENGTH, do_sample=False)
    new = tokens[:, inputs["input_ids"].shape[1] :].tolist()
    assert found == [" ".join(map(str, row)) for row in new]
