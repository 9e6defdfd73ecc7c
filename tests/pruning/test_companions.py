"""What people put around a model: adapters, trainers, pipelines, offloading, replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import PreTrainedModel, Trainer, TrainingArguments, pipeline

import tokencover as tc
from tests.pruning.prompts_ending_in_pictures import KeepFirst
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, NEVER, built, generate
from tests.pruning.test_prune import fingerprint
from tests.zoo import ZOO
from tests.zoo.entry import Inputs, ZooEntry
from tests.zoo.oracle import blocked_forward, recompute_greedy
from tokencover.loading import load
from tokencover.methods import Method
from tokencover.prompting import make_inputs
from tokencover_models.pebble.data import make_examples

FEW = [pytest.param(ZOO[name], id=name) for name in ("llava", "qwen2_vl")]
GREEDY: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": NEVER}
METHOD = KeepRandom(BUDGET, (1,))


def words_of(model: Any, inputs: Inputs) -> Tensor:
    found: Tensor = generate(model, inputs, **GREEDY)
    return found[:, inputs["input_ids"].shape[1] :]


# ---- adapters --------------------------------------------------------------------------------


class LoraLinear(nn.Module):
    """As PEFT's: not a linear layer, but one is inside, and the sizes are the same."""

    def __init__(self, base_layer: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.in_features, self.out_features = base_layer.in_features, base_layer.out_features
        self.lora_A = nn.ModuleDict({"default": nn.Linear(self.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, self.out_features, bias=False)})

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))
        return found


class LoraModel(nn.Module):
    """As PEFT's: passes on what it does not have, and calls the model's forward directly."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.forward(*args, **kwargs)


class PeftModel(nn.Module):
    """What matters of PEFT's wrapper, which is not installed here."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.base_model = LoraModel(model)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base_model"), name)

    def get_base_model(self) -> nn.Module:
        return self.base_model.model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.base_model(*args, **kwargs)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        return self.base_model.generate(*args, **kwargs)


def adapt(entry: ZooEntry) -> tuple[PreTrainedModel, PeftModel]:
    """A model with adapters in all its blocks, and the wrapper around it."""
    model = entry.build()
    torch.manual_seed(0)
    for name, module in list(model.named_modules()):
        owner, _, last = name.rpartition(".")
        if last in ("q_proj", "v_proj", "qkv") and isinstance(module, nn.Linear):
            setattr(model.get_submodule(owner), last, LoraLinear(module))
    return model, PeftModel(model)


@pytest.mark.parametrize("given", ["wrapper", "model"])
@pytest.mark.parametrize("called", ["wrapper", "model"])
@pytest.mark.parametrize("entry", FEW)
def test_adapters(entry: ZooEntry, given: str, called: str) -> None:
    model, wrapper = adapt(entry)
    inputs = entry.inputs("ragged")
    dropped = dropped_by(METHOD, inputs, entry.visual(inputs))[1]
    both: dict[str, Any] = {"wrapper": wrapper, "model": model}
    with torch.no_grad():
        wrapper(**inputs)
        before = fingerprint(model)
        with tc.prune(both[given], METHOD, prompt=entry.user_words(inputs)) as run:
            found = both[called](**inputs).logits[:, -1]
            words = words_of(both[called], inputs)
            with pytest.raises(tc.InputError, match="already pruned"):
                tc.prune(wrapper, METHOD)
    assert fingerprint(model) == before
    assert [len(trace.kept) for trace in run.trace] == [BUDGET] * 3
    expected = blocked_forward(model, inputs, dropped, 1)[:, -1]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert torch.equal(words, recompute_greedy(model, inputs, 4, dropped, 1))
    plain = blocked_forward(built(entry.name), inputs, dropped, 1)[:, -1]
    assert (plain - expected).abs().max() > 1e-3  # the adapters do something


@pytest.mark.parametrize("method", [tc.FastV(7, after=1), tc.DART(7), tc.SparseVLM(7), tc.MoB(7)])
def test_methods_that_read_blocks_with_adapters(method: Method) -> None:
    """Adapters that were added into the weights must lead to the same words."""
    model, wrapper = adapt(ZOO["llava"])
    inputs = ZOO["llava"].inputs("ragged")
    prompt = ZOO["llava"].user_words(inputs)
    with tc.prune(wrapper, method, prompt=prompt) as run:
        found = words_of(wrapper, inputs)
    kept = [trace.kept for trace in run.trace]
    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLinear):
            owner, _, last = name.rpartition(".")
            down: Any = module.lora_A["default"]
            up: Any = module.lora_B["default"]
            with torch.no_grad():
                module.base_layer.weight += up.weight @ down.weight
            setattr(model.get_submodule(owner), last, module.base_layer)
    with tc.prune(model, method, prompt=prompt) as run:
        assert torch.equal(words_of(model, inputs), found)
    assert all(map(torch.equal, kept, [trace.kept for trace in run.trace]))


def test_the_cost_of_adapters_is_theirs() -> None:
    model, _ = adapt(ZOO["llava"])
    inputs = ZOO["llava"].inputs("single")
    costs = []
    for each in (built("llava"), model):
        prompt = ZOO["llava"].user_words(inputs)
        with torch.no_grad(), tc.prune(each, METHOD, prompt=prompt) as run:
            each(**inputs)
        costs.append(run.trace[0].flops_unpruned)
    length = int(inputs["attention_mask"].sum())
    rank, query, value = 2, 32 + 32, 32 + 16
    assert costs[1] - costs[0] == 2 * 5 * length * rank * (query + value)


def test_labels_reach_pruning_through_the_wrapper() -> None:
    """The word after an image is scored, so the last token of the image must stay."""
    _, wrapper = adapt(ZOO["llava"])
    inputs = ZOO["llava"].inputs("single")
    labels = inputs["input_ids"].masked_fill(ZOO["llava"].visual(inputs), -100)
    with torch.no_grad(), tc.prune(wrapper, KeepFirst(3), prompt=labels > 0) as run:
        wrapper(**inputs, labels=labels)
        assert run.trace[0].kept.tolist() == [0, 1, 2, run.trace[0].visual_tokens - 1]
        wrapper(**inputs)
        assert run.trace[0].kept.tolist() == [0, 1, 2]


# ---- training --------------------------------------------------------------------------------


class OneBatch(Dataset[Inputs]):
    """The rows of a batch; the collator gives the batch itself."""

    def __init__(self, batch: Inputs) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch["input_ids"])

    def __getitem__(self, row: int) -> Inputs:
        return {"row": torch.tensor(row)}

    def collate(self, rows: list[Inputs]) -> Inputs:
        assert [int(each["row"]) for each in rows] == list(range(len(self)))
        return self.batch


def train_by_hand(model: PreTrainedModel, batch: Inputs, rate: float) -> float:
    model.train()
    loss = model(**batch).loss
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(rate * parameter.grad)
    return float(loss.detach())


@pytest.mark.parametrize("checkpointing", [None, False, True], ids=["without", "new", "reentrant"])
@pytest.mark.parametrize("entry", FEW)
def test_the_trainer_of_transformers(
    entry: ZooEntry, checkpointing: bool | None, tmp_path: Path
) -> None:
    inputs = entry.inputs("ragged")
    prompt = entry.user_words(inputs)
    batch = {**inputs, "labels": inputs["input_ids"].masked_fill(~prompt, -100)}
    method, rate = KeepRandom(BUDGET, (1, 3)), 0.1
    by_hand, by_trainer = entry.build(), entry.build()
    with tc.prune(by_hand, method, prompt=prompt):
        expected = train_by_hand(by_hand, batch, rate)
    with torch.no_grad():
        start = float(entry.build()(**batch).loss)
    rows = OneBatch(batch)
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=len(rows),
        learning_rate=rate, lr_scheduler_type="constant", optim="sgd", max_grad_norm=0.0,
        logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        remove_unused_columns=False, train_sampling_strategy="sequential",
        gradient_checkpointing=checkpointing is not None, dataloader_pin_memory=False,
        gradient_checkpointing_kwargs={"use_reentrant": bool(checkpointing)},
    )  # fmt: skip
    trainer = Trainer(by_trainer, arguments, data_collator=rows.collate, train_dataset=rows)
    with tc.prune(by_trainer, method, prompt=prompt) as run:
        found = trainer.train().training_loss
    assert found == pytest.approx(expected, abs=1e-5)
    assert found != pytest.approx(start, abs=1e-3)
    assert [len(trace.kept) for trace in run.trace] == [BUDGET - 2] * 3
    for (name, first), second in zip(
        by_hand.named_parameters(), by_trainer.parameters(), strict=True
    ):
        torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-3, msg=name)


# ---- pipelines -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [tc.MoB(16), tc.FastV(16, after=1)], ids=["mob", "fastv"])
def test_a_pipeline_answers_as_generate_does(method: Method) -> None:
    model, processor = load("pebble")
    examples = list(make_examples("test", 3))[:3]
    ask: Any = pipeline("image-text-to-text", model=model, processor=processor)
    chats = [
        [{"role": "user", "content": [
            {"type": "image", "image": each.picture}, {"type": "text", "text": each.question},
        ]}]
        for each in examples
    ]  # fmt: skip
    with tc.prune(model, method, processor=processor) as run:
        answers = ask(text=chats, max_new_tokens=2, return_full_text=False, batch_size=1)
        assert [len(trace.kept) for trace in run.trace] == [16]
        inputs = [make_inputs(processor, [([each.picture], each.question)]) for each in examples]
        expected = [
            model.generate(**each, max_new_tokens=2)[:, each["input_ids"].shape[1] :]
            for each in inputs
        ]
    texts = [processor.decode(each[0], skip_special_tokens=True) for each in expected]
    assert [each[0]["generated_text"].strip() for each in answers] == texts
    assert all(texts)


# ---- offloading ------------------------------------------------------------------------------


@pytest.mark.parametrize("away", ["cpu", "disk"])
@pytest.mark.parametrize("method", [METHOD, tc.FastV(BUDGET, after=1), tc.DART(BUDGET)], ids=str)
def test_blocks_on_other_devices(method: Method, away: str, tmp_path: Path) -> None:
    """As from_pretrained(device_map=...) leaves a model whose weights do not fit."""
    entry, model = ZOO["llava"], ZOO["llava"].build()
    inputs = entry.inputs("ragged")
    prompt = entry.user_words(inputs)
    with tc.prune(model, method, prompt=prompt):
        expected = words_of(model, inputs)
    places: dict[str, Any] = {"model.vision_tower": "cpu", "model.multi_modal_projector": away}
    places |= {"lm_head": "cpu", "model.language_model.embed_tokens": "cpu"}
    places |= {"model.language_model.norm": "cpu", "model.language_model.rotary_emb": "cpu"}
    for number in range(5):
        places[f"model.language_model.layers.{number}"] = away if number else "cpu"
    dispatch_model(
        model, places, main_device="cpu", offload_dir=str(tmp_path), force_hooks=True,
    )  # fmt: skip
    assert (away == "disk") == any(each.device.type == "meta" for each in model.parameters())
    before = fingerprint(model)
    with tc.prune(model, method, prompt=prompt) as run:
        found = words_of(model, inputs)
    assert torch.equal(found, expected)
    assert [len(trace.kept) for trace in run.trace] == [BUDGET] * 3
    assert fingerprint(model) == before


# ---- refused ---------------------------------------------------------------------------------


def test_continuous_batching_is_refused() -> None:
    model, entry = built("llava"), ZOO["llava"]
    inputs = entry.inputs("single")
    ids = inputs["input_ids"].tolist()
    calls: list[Any] = []
    handle = model.lm_head.register_forward_hook(lambda *_: calls.append(1))
    attention = model.config._attn_implementation
    run: Any = model
    with tc.prune(model, METHOD, prompt=entry.user_words(inputs)):
        with pytest.raises(tc.InputError, match="Continuous batching"):
            run.generate_batch(ids, max_new_tokens=2)
        with pytest.raises(tc.InputError, match="Continuous batching"):
            run.init_continuous_batching()
        with pytest.raises(tc.InputError, match="Continuous batching"):
            run.generate(input_ids=inputs["input_ids"], cache_implementation="paged")
        # Of a manager that was made before, the model sees only calls like this one.
        with pytest.raises(tc.InputError, match="Continuous batching"):
            run(input_ids=inputs["input_ids"], write_index=[torch.arange(3)], use_cache=False)
    handle.remove()
    assert calls == []
    assert model.config._attn_implementation == attention
    assert "init_continuous_batching" not in vars(model)


def test_replicas_are_refused() -> None:
    model = ZOO["llava"].build()
    with tc.prune(model, METHOD), pytest.raises(tc.InputError, match="DataParallel"):
        model._replicate_for_data_parallel()
    model._replicate_for_data_parallel()


def test_data_parallel_on_one_device() -> None:
    entry, model = ZOO["llava"], ZOO["llava"].build()
    inputs = entry.inputs("ragged")
    parallel = nn.DataParallel(model)
    with torch.no_grad(), tc.prune(model, METHOD, prompt=entry.user_words(inputs)):
        assert torch.equal(parallel(**inputs).logits, model(**inputs).logits)
    with pytest.raises(tc.TokenCoverError, match="DataParallel wraps the model"):
        tc.prune(parallel, METHOD)
