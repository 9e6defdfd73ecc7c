"""MoB on models: it chooses what Algorithm 1 chooses on the states at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import tokencover as tc
from kernel_counter import count_kernels
from tests.budget.coupling_streams import two_heaps
from tests.covering.together.on_accelerator import pretend_accelerator
from tests.methods.views import hand_made
from tests.pruning.test_matrix import DISTINCT, built, with_media
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tests.zoo.oracle import decoder_blocks
from tokencover.budget import balance_prompt_budget
from tokencover.budget.profile import Profile
from tokencover.budget.split import BalancedSplit, CouplingSplit, OnlineSplit, PaperSplit
from tokencover.covering import mob_batch
from tokencover.methods import Choice, View, from_json, to_json


def states_before(entry: ZooEntry, inputs: Inputs, block: int) -> Tensor:
    """What an unpruned model hands to a block."""
    model = built(entry.name)
    seen: list[Tensor] = []

    def look(_: nn.Module, args: Any) -> None:
        seen.append(args[0])

    handle = decoder_blocks(model)[block].register_forward_pre_hook(look)
    with torch.no_grad():
        model(**inputs)
    handle.remove()
    return seen[0]


def choosable(entry: ZooEntry, inputs: Inputs) -> Tensor:
    newline = entry.newline(inputs)
    visual = entry.visual(inputs)
    return visual if newline is None else visual & ~newline


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("entry", DISTINCT)
def test_it_keeps_what_algorithm_1_chooses(entry: ZooEntry, after: int) -> None:
    model = built(entry.name)
    for kind in with_media(entry):
        inputs = entry.inputs(kind)
        words = entry.user_words(inputs)
        states = states_before(entry, inputs, after)
        with torch.no_grad(), tc.prune(model, tc.MoB(budget=6, after=after), prompt=words) as run:
            model(**inputs)
        for trace in run.trace:
            row = trace.sample
            patches = choosable(entry, inputs)[row].nonzero().squeeze(-1)
            visual = entry.visual(inputs)[row].nonzero().squeeze(-1)
            is_video = kind == "video" or (kind == "image_and_video" and row == 1)
            split = tc.paper_split(6, len(patches), modality="video" if is_video else "image")
            if isinstance(trace.split, list) and kind == "image_and_video" and row == 1:
                split = trace.split[0]  # a mixed prompt uses the table for images
            expected = mob_batch(
                states[row, patches][None],
                states[row, words[row]][None],
                budget=split.budget,
                prompt_budget=split.prompt_budget,
                fold=split.fold,
            )[0]
            assert (
                visual[trace.prompt_centers].tolist() == patches[expected.prompt_centers].tolist()
            )
            assert (
                visual[trace.visual_centers].tolist() == patches[expected.visual_centers].tolist()
            )
            eta = tc.coupling(states[row, patches], states[row, words[row]])
            assert trace.coupling == pytest.approx(float(eta), abs=1e-4)
            assert trace.split == [split]
            assert trace.seconds > 0


@pytest.mark.parametrize("name", ["llava_next", "llava_onevision"])
def test_newline_tokens_stay(name: str) -> None:
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs("ragged")
    newline = entry.newline(inputs)
    assert newline is not None
    with torch.no_grad(), tc.prune(model, tc.MoB(budget=3), prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    for trace in run.trace:
        visual = entry.visual(inputs)[trace.sample].nonzero().squeeze(-1)
        kept = set(visual[trace.kept].tolist())
        newlines = set(newline[trace.sample].nonzero().squeeze(-1).tolist())
        assert newlines <= kept
        assert len(kept - newlines) == 3


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "llava_onevision"])
def test_a_budget_for_each_image(name: str) -> None:
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs("two_images")
    method = tc.MoB(budget=4, per="image")
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    for trace in run.trace:
        patches = trace.row >= 0
        assert trace.medium[patches].bincount().tolist() == [4, 4]
        assert len(trace.split) == 2


def test_a_share_is_taken_of_each_sample() -> None:
    entry, model = ZOO["qwen2_vl"], built("qwen2_vl")
    inputs = entry.inputs("ragged")
    method = tc.MoB(budget=0.5)
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    for trace in run.trace:
        assert abs(len(trace.kept) - trace.visual_tokens / 2) <= 0.5
    assert len({len(trace.kept) for trace in run.trace}) > 1


def test_a_budget_above_all_tokens_changes_nothing() -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("ragged")
    with torch.no_grad():
        plain = model(**inputs).logits
        with tc.prune(model, tc.MoB(budget=10_000), prompt=entry.user_words(inputs)) as run:
            assert torch.equal(model(**inputs).logits, plain)
    assert all(len(trace.kept) == trace.visual_tokens for trace in run.trace)


def test_empty_prompt_gives_visual_centers_only() -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("single")
    words = torch.zeros_like  # what is located may be nothing; a mask of nothing is an error
    with torch.no_grad(), tc.prune(model, tc.MoB(budget=5), prompt=lambda _, v: words(v)) as run:
        model(**inputs)
    assert len(run.trace[0].prompt_centers) == 0
    assert len(run.trace[0].visual_centers) == 5
    assert run.trace[0].coupling is None


def test_the_split_can_be_given() -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("single")
    method = tc.MoB(budget=8, split=tc.Split(2, 6, 1))
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    assert len(run.trace[0].prompt_centers) == 2
    assert len(run.trace[0].visual_centers) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": 0}, "got 0"),
        ({"budget": 1.5}, r"fraction in \(0, 1\]"),
        ({"budget": 8, "split": "both"}, "'both'"),
        ({"budget": 8, "split": tc.Split(2, 2, 1)}, "has a budget of 4 tokens, but budget=8"),
        ({"budget": 8, "split": tc.Split(4, 4, 1), "budget_mode": "layer_mean"}, "'layer_mean'"),
        ({"budget": 8, "after": -1}, "got -1"),
        ({"budget": 8, "per": "video"}, "'video'"),
    ],
)
def test_invalid_settings_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        tc.MoB(**arguments)


def test_after_beyond_last_layer_raises() -> None:
    with pytest.raises(tc.InputError, match=r"after=5 is out of range.*has 5 layers"):
        tc.prune(built("llava"), tc.MoB(budget=8, after=5))


class Looks(tc.MoB):
    """Remembers what it was shown."""

    seen: ClassVar[list[View]] = []

    def choose(self, view: View) -> Choice:
        self.seen.append(view)
        return super().choose(view)


@pytest.mark.parametrize("side", SIDES)
def test_view_positions_of_prompt_and_last_token(side: Side) -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("ragged", side)
    words = entry.user_words(inputs)
    with torch.no_grad(), tc.prune(model, Looks(budget=4), prompt=words):
        model(**inputs)
    view = Looks.seen.pop()
    for row, mask in enumerate(words):
        found = view.prompt_positions[row]
        assert found[found >= 0].tolist() == mask.nonzero().squeeze(-1).tolist()
        real = inputs["attention_mask"][row].nonzero().squeeze(-1)
        assert int(view.last[row]) == int(real[-1])


def seen_by_rules(seed: int = 0, **changes: Any) -> View:
    """Samples of 30, 24 and 36 tokens; the words of the second are far from its image."""
    generator = torch.Generator().manual_seed(seed)
    states = [torch.randn(size, 8, generator=generator) for size in (30, 24, 36)]
    words = [torch.randn(4, 8, generator=generator) for _ in states]
    states[1] = states[1].abs()
    words[1] = -words[1].abs()
    return hand_made(states, words=words, behind=4, **changes)


def etas(view: View) -> list[float]:
    pairs = zip(view.hidden_states, view.mask, view.prompt, strict=True)
    return [float(tc.coupling(states[mask], words)) for states, mask, words in pairs]


def same(first: Choice, second: Choice) -> bool:
    return all(map(torch.equal, first.kept, second.kept))


def test_coupling_chooses_the_table_of_each_sample() -> None:
    view = seen_by_rules()
    found = etas(view)
    tau = sorted(found)[1]
    choice = tc.MoB(budget=9, split=CouplingSplit(tau)).choose(view)
    for sample, (eta, details) in enumerate(zip(found, choice.details, strict=True)):
        group = "strong" if eta <= tau else "weak"
        alone = tc.MoB(budget=9, split=group).choose(view)
        assert details["group"] == group
        assert details["groups"] == [group]
        assert details["rule"] == "coupling"
        assert details["coupling"] == eta
        assert details["split"] == [
            tc.paper_split(9, int(view.mask[sample].sum()), coupling=group)  # type: ignore[arg-type]
        ]
        assert torch.equal(choice.kept[sample], alone.kept[sample])
    assert {details["group"] for details in choice.details} == {"strong", "weak"}


def test_details_contain_rule_and_group() -> None:
    view = seen_by_rules()
    for split, group in (("paper", None), ("strong", "strong"), ("weak", "weak"), ("auto", None)):
        details = tc.MoB(budget=9, split=split).choose(view).details
        assert [each["group"] for each in details] == [group] * 3
        assert {each["rule"] for each in details} == {"paper"}


def test_images_of_sample_with_different_groups() -> None:
    view = seen_by_rules()
    medium = torch.zeros_like(view.medium)
    medium[:, 10:] = 1
    view = seen_by_rules(medium=medium)
    halves = [
        float(tc.coupling(view.hidden_states[0, part], view.prompt[0]))
        for part in (slice(0, 10), slice(10, 30))
    ]
    method = tc.MoB(budget=4, per="image", split=CouplingSplit(sum(halves) / 2))
    details = method.choose(view).details[0]
    expected = ["strong", "weak"] if halves[0] < halves[1] else ["weak", "strong"]
    assert details["groups"] == expected
    assert details["group"] is None
    assert details["coupling"] == max(halves)


def test_online_changes_nothing_during_warm_up() -> None:
    method = tc.MoB(budget=9, split=OnlineSplit(warm_up=50, memory=50))
    for seed in range(17):  # 3 samples each: the last sees samples 49 to 51
        view = seen_by_rules(seed)
        online, paper = method.choose(view), tc.MoB(budget=9).choose(view)
        if seed < 16:
            assert same(online, paper)
            assert [each["group"] for each in online.details] == [None] * 3
            assert [each["split"] for each in online.details] == [
                each["split"] for each in paper.details
            ]
    assert isinstance(method.split, OnlineSplit)
    assert method.split.threshold.seen == 51


def test_online_learns_from_what_it_prunes() -> None:
    rule = OnlineSplit(warm_up=50, memory=100)
    generator = torch.Generator().manual_seed(0)
    answers = []
    for number in range(30):
        near = torch.zeros(8)
        near[0] = 1.0
        far = near if number % 2 else -near
        noise = torch.randn(2, 14, 8, generator=generator) * 0.05
        states, words = near + noise[:, :12], far + noise[:, 12:]
        view = hand_made(list(states), words=list(words), behind=2)
        answers += [each["group"] for each in tc.MoB(budget=6, split=rule).choose(view).details]
    assert answers[:50] == [None] * 50
    # Words that point where the image points are strongly coupled: those of odd numbers.
    assert answers[50:] == ["strong", "strong", "weak", "weak"] * 2 + ["strong", "strong"]


def test_balanced_divides_by_geometry() -> None:
    view = seen_by_rules()
    choice = tc.MoB(budget=9, split="balanced").choose(view)
    for sample, details in enumerate(choice.details):
        visual, words = view.hidden_states[sample, view.mask[sample]], view.prompt[sample]
        share = balance_prompt_budget(visual, words, 9)
        (split,) = details["split"]
        assert (split.prompt_budget, split.visual_budget) == (share, 9 - share)
        assert len(choice.kept[sample].unique()) == 9
        assert details["rule"] == "balanced"


def test_profile_of_other_layer_raises() -> None:
    profile = Profile.of("m", 2, {"a": two_heaps(100)})
    tc.MoB(budget=8, split=CouplingSplit(profile), after=2)
    with pytest.raises(tc.InputError, match="measured after 2 layers"):
        tc.MoB(budget=8, split=CouplingSplit(profile))


def test_every_rule_survives_json(tmp_path: Path) -> None:
    profile = Profile.of("m", 1, {"a": two_heaps(100)})
    profile.save(tmp_path / "p.json")
    for split in (
        "paper",
        "balanced",
        "auto",
        tc.Split(3, 5, 1),
        PaperSplit("weak"),
        CouplingSplit(1.3),
        CouplingSplit(profile),
        CouplingSplit(tmp_path / "p.json"),
        OnlineSplit(70, 700),
        BalancedSplit(),
    ):
        method = tc.MoB(budget=8, split=split)
        assert from_json(to_json(method)) == method
        assert hash(from_json(to_json(method))) == hash(method)
    with pytest.raises(tc.InputError, match="no split rule 'magic'"):
        from_json('{"method": "mob", "budget": 8, "split": {"rule": "magic"}}')


def test_accelerator_sync_count_one_above_algorithm() -> None:
    """For the sizes of all samples; eta and the words of centers are for those who read them."""
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(size, 24, generator=generator) for size in (90, 70, 90)]
    view = hand_made(states, behind=[4, 3, 5])
    method = tc.MoB(20)
    method.choose(view)
    with pretend_accelerator(), count_kernels() as tally:
        method.choose(view)
    assert 1 <= tally.reads <= 3
