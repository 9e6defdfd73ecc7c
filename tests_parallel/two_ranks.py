"""What two processes see of a model that they share; run by torchrun, see `launch`.

Each rank writes what it observed to a file. Tests compare the files with one process.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from transformers import PreTrainedModel

import tokencover as tc
from tests.methods.cases import CASES, Case
from tests.pruning.random_method import KeepRandom
from tests.zoo import ZOO
from tests.zoo.entry import Inputs, ZooEntry
from tests.zoo.oracle import decoder_blocks
from tests.zoo.weights import seeded
from tokencover.families import list_claims
from tokencover.methods import METHODS, Choice, View, VisionMerge, VisionView

NEVER = 10**6  # no token ends the text
STEPS = 3
SECONDS = 300
TURNS = ("llava",)
"""Families whose own forward takes another image over a cache."""


def build(name: str) -> PreTrainedModel:
    """A model of the zoo whose heads can be split in two."""
    model = ZOO[name].build()
    config: Any = copy.deepcopy(model.config)
    text = config.get_text_config()
    if text.num_key_value_heads % 2 == 0:
        return model
    text.num_attention_heads, text.num_key_value_heads, text.head_dim = 4, 2, 8
    if "mrope_section" in (text.rope_parameters or {}):
        text.rope_parameters["mrope_section"] = [2, 1, 1]
    return seeded(type(model), config, "sdpa", torch.float32)


def list_cases(name: str) -> list[tuple[Case, dict[str, Any]]]:
    """Every method that claims a family, and the settings that it needs there."""
    return [
        (case, {} if claim.as_published else {"positions": "original"})
        for case in CASES
        for claim in list_claims(METHODS[case.method])
        if name in claim.family.model_types
    ]


def observe(model: Any, method: tc.Method, entry: ZooEntry, kind: str) -> dict[str, Any]:
    """What a method does on a batch: in a forward pass, and in generate with a cache."""
    inputs = entry.inputs(kind)
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        logits = model(**inputs, use_cache=False).logits
        traces = run.trace
        words = model.generate(
            **inputs, max_new_tokens=STEPS, do_sample=False, eos_token_id=NEVER
        )  # fmt: skip
    return {
        "logits": logits,
        "words": words,
        "kept": [trace.kept for trace in traces],
        "counts": [trace.tokens_per_layer for trace in traces],
        "flops": [(trace.flops, trace.flops_unpruned) for trace in traces],
    }


def observe_all(model: Any, name: str) -> dict[str, Any]:
    """Every method on a family, and the unpruned model; a second turn over a kept cache."""
    entry = ZOO[name]
    with torch.no_grad():
        found: dict[str, Any] = {"unpruned": model(**entry.inputs("ragged")).logits}
    for case, changes in list_cases(name):
        found[case.id] = observe(model, case.make(**changes), entry, "ragged")
    if name in TURNS:
        found["second turn"] = observe_second_turn(model, entry)
    return found


def observe_second_turn(model: Any, entry: ZooEntry) -> dict[str, Any]:
    """FastV reads the keys of an earlier turn out of the cache, of the heads of this rank."""
    first, second = entry.inputs("single"), second_image(entry)
    both = torch.cat([entry.user_words(first), entry.user_words(second)], 1)
    with (
        torch.no_grad(),
        tc.prune(model, tc.FastV(7), prompt=lambda ids, _: both[:, -ids.shape[1] :]) as run,
    ):
        cache = model(**first, use_cache=True).past_key_values
        second["attention_mask"] = torch.ones_like(both)
        logits = model(**second, past_key_values=cache).logits
        return {"logits": logits, "kept": [trace.kept for trace in run.trace]}


def second_image(entry: ZooEntry) -> Inputs:
    """Another turn with an image, as long as the first one."""
    return entry.collate([sample.repainted() for sample in entry.samples("single")])


@dataclass(frozen=True)
class DrawOnEachRank(KeepRandom):
    """A method whose ranks do not draw the same."""

    def choose(self, view: View) -> Choice:
        start = distributed.get_rank()
        return Choice([torch.arange(start, start + 5) for _ in view.mask])


@dataclass(frozen=True)
class FailOnOneRank(KeepRandom):
    def choose(self, view: View) -> Choice:
        if distributed.get_rank() == 1:
            raise MemoryError("no memory left on rank 1")
        return super().choose(view)


class MergeOnEachRank(tc.ToMe):
    """A method whose ranks merge different numbers of tokens in the vision encoder."""

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        own = tc.ToMe(0.4 + 0.2 * distributed.get_rank())
        return own.merge_in_vision_encoder(view)


def observe_errors(model: Any, name: str) -> dict[str, Any]:
    """What each rank raises if they disagree or one of them fails; the model works afterwards."""
    entry, found = ZOO[name], {}
    inputs = entry.inputs("ragged")
    methods = (DrawOnEachRank(5), FailOnOneRank(5), MergeOnEachRank(0.5), KeepRandom(5))
    for method in methods:
        try:
            with torch.no_grad(), tc.prune(model, method):
                found[type(method).__name__] = model(**inputs).logits.isfinite().all()
        except Exception as error:
            found[type(method).__name__] = repr(error)
    return found


def share_by_tensors(folder: str, name: str) -> Any:
    kind: Any = type(ZOO[name].build())
    return kind.from_pretrained(folder, tp_plan="auto", attn_implementation="sdpa").eval()


def share_vision_encoder(folder: str, name: str) -> Any:
    """With a vision encoder that is split, too."""
    kind: Any = type(ZOO[name].build())
    plan = {
        f"model.vision_tower.encoder.layers.*.self_attn.{part}_proj": "colwise" for part in "qkv"
    }
    plan["model.vision_tower.encoder.layers.*.self_attn.out_proj"] = "rowwise"
    return kind.from_pretrained(folder, tp_plan=plan, attn_implementation="sdpa").eval()


def share_by_layers(folder: str, name: str) -> Any:
    """FSDP: each rank has its own batch, and gathers the weights of a layer when it runs."""
    from torch.distributed.fsdp import fully_shard

    model = build(name)
    mesh = init_device_mesh("cpu", (2,))
    for layer in decoder_blocks(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def share_by_experts(folder: str, name: str) -> Any:
    """Each rank has some of the experts, and some of the heads."""
    from transformers.distributed.configuration_utils import DistributedConfig

    kind: Any = type(ZOO[name].build())
    plan = DistributedConfig(tp_size=2, ep_size=2)
    return kind.from_pretrained(folder, distributed_config=plan, attn_implementation="sdpa").eval()


def share_by_copies(folder: str, name: str) -> Any:
    """The wrapper that trains copies."""
    return torch.nn.parallel.DistributedDataParallel(build(name))


def observe_wrapped(wrapper: Any, name: str) -> dict[str, Any]:
    """The model inside is pruned, and the wrapper called."""
    inputs, found = ZOO[name].inputs("ragged"), {}
    words = ZOO[name].user_words(inputs)
    for method in (tc.FastV(7), tc.MoB(7)):
        with torch.no_grad(), tc.prune(wrapper.module, method, prompt=words) as run:
            logits = wrapper(**inputs).logits
        found[type(method).__name__] = {"logits": logits, "kept": [e.kept for e in run.trace]}
    return found


def observe_few(model: Any, name: str) -> dict[str, Any]:
    """A method that reads attention, and one that does not."""
    methods = (tc.FastV(7), tc.MoB(7))
    return {type(each).__name__: observe(model, each, ZOO[name], "ragged") for each in methods}


def observe_vision(model: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"mob": observe(model, tc.MoB(7), ZOO[name], "ragged")}
    for method in (tc.VisionZip(7), tc.ToMe(0.5)):
        try:
            observe(model, method, ZOO[name], "ragged")
        except tc.InputError as error:
            found[type(method).__name__] = str(error)
    return found


TASKS: dict[str, tuple[Callable[[str, str], Any], Callable[[Any, str], dict[str, Any]]]] = {
    "tensors": (share_by_tensors, observe_all),
    "errors": (share_by_tensors, observe_errors),
    "vision": (share_vision_encoder, observe_vision),
    "layers": (share_by_layers, observe_all),
    "experts": (share_by_experts, observe_few),
    "copies": (share_by_copies, observe_wrapped),
}


def launch(task: str, name: str, folder: Path) -> list[dict[str, Any]]:
    """Run a task on two ranks; what each of them observed."""
    build(name).save_pretrained(folder)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "tests_parallel.two_ranks", task, name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def main(task: str, name: str, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    share, look = TASKS[task]
    model = share(folder, name)
    getattr(model, "module", model).generation_config = ZOO[name].build().generation_config
    torch.save(look(model, name), Path(folder) / f"{os.environ['RANK']}.pt")
    distributed.barrier()
    os._exit(0)  # threads of gloo may abort while Python cleans up


if __name__ == "__main__":
    main(*sys.argv[1:])
