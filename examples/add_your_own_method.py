"""Write a method as one class that runs on every supported model.

    python examples/add_your_own_method.py

It keeps the tokens that differ most from the mean token of the image. Budgets in three modes, names
on the command line and JSON come with the base class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import tokencover as tc
from tokencover.methods import ActsOnce, Card, Choice, View, choose_best
from tokencover_models.pebble.data import make_examples


@tc.register
@dataclass(frozen=True)
class Outliers(ActsOnce):
    """Keep the visual tokens that are farthest from their mean."""

    name: ClassVar[str] = "outliers"
    card: ClassVar[Card] = Card(
        title="Outliers",
        year=2026,
        objective="visual",
        pruning_point="after 1 decoder layer",
        signal="distance from the mean hidden state",
    )
    reads_prompt = False

    after: int = 1

    def choose(self, view: View) -> Choice:
        """Select the tokens farthest from the mean; padding is masked out."""
        hidden_states, mask = view.hidden_states.float(), view.mask[..., None]
        mean = (hidden_states * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
        distances = (hidden_states - mean).norm(dim=-1)
        return Choice(choose_best(distances, view.mask, self.num_kept(view)))


def main() -> None:
    """Answer a few questions with it, with MoB, and with all tokens."""
    model, processor = tc.load("pebble")
    examples = list(make_examples("test", 2, ("color", "read", "common_color")))
    inputs = tc.make_inputs(
        processor, [([example.picture], example.question) for example in examples]
    )

    for method in (None, tc.MoB(64), tc.get_method("outliers", budget=64)):
        run = None if method is None else tc.prune(model, method, processor=processor)
        tokens = model.generate(**inputs, max_new_tokens=4, do_sample=False)
        if run is not None:
            run.remove()
        answers = processor.batch_decode(
            tokens[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        pairs = zip(answers, examples, strict=True)
        right = sum(answer.strip() == example.answer for answer, example in pairs)
        print(f"{'all tokens' if method is None else method}: {right} of {len(examples)} right")


if __name__ == "__main__":
    main()
