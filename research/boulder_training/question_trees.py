"""Many texts behind one image, with beginnings that they share run once.

The questions "is there a red star ?" and "is there a red heart ?" have four words in common. All
texts about an image form a tree; each word sees the image and the words on its way from the
root, hence exactly what it sees when its text stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Text:
    """Tokens to read, and which of them the model is to say.

    Attributes
    ----------
    kind
        Of the question, or ``"phrase"``.
    tokens
        Of question and answer.
    first
        Index of the first one that is a target; all later ones are too.
    judged
        Index of the first one that must be right for the text to count as right, with all later
        ones.
    """

    kind: str
    tokens: tuple[int, ...]
    first: int
    judged: int


@dataclass
class TextTree:
    """Texts about one image.

    Attributes
    ----------
    tokens, parents, depths
        Of every node; the parent of a first word is -1.
    spots, targets, kinds
        Nodes that are followed by a target, what it is, and the kind of its text.
    judged
        Per text, which of `spots` are judged.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    spots: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    judged: list[range] = field(default_factory=list)


def grow_tree(texts: Sequence[Text]) -> TextTree:
    """Merge the beginnings that texts share; the last token of a text is only a target."""
    tree = TextTree()
    nodes: dict[tuple[int, ...], int] = {}
    for text in texts:
        node = -1
        started = len(tree.spots)
        for index, token in enumerate(text.tokens):
            if index >= text.first:
                tree.spots.append(node)
                tree.targets.append(token)
                tree.kinds.append(text.kind)
            if index == len(text.tokens) - 1:
                break
            way = text.tokens[: index + 1]
            if way not in nodes:
                nodes[way] = len(tree.tokens)
                tree.tokens.append(token)
                tree.parents.append(node)
                tree.depths.append(index)
            node = nodes[way]
        tree.judged.append(range(started + text.judged - text.first, len(tree.spots)))
    return tree


def read_trees(
    llava: Any, visual: Tensor, positions: Tensor, places: int, trees: Sequence[TextTree]
) -> Tensor:
    """Run the decoder over images with all their texts.

    Parameters
    ----------
    llava
        The model.
    visual
        Projected visual tokens, shape (images, visual, width).
    positions
        Their places among all of the image's, shape (images, visual).
    places
        How many places there are: texts are numbered on from there.
    trees
        One for each image.

    Returns
    -------
    Tensor
        Logits at every spot of every tree, one after the other, shape (spots, words).
    """
    decoder = llava.model.language_model
    shared = 1 + visual.shape[1]
    longest = max(len(tree.tokens) for tree in trees)
    tokens = torch.zeros(len(trees), longest, dtype=torch.long)
    depths = torch.zeros_like(tokens)
    for row, tree in enumerate(trees):
        tokens[row, : len(tree.tokens)] = torch.tensor(tree.tokens)
        depths[row, : len(tree.depths)] = torch.tensor(tree.depths)
    begin = torch.full((len(trees), 1), llava.config.text_config.bos_token_id)
    states = torch.cat([decoder.embed_tokens(begin), visual, decoder.embed_tokens(tokens)], dim=1)
    numbers = torch.cat([torch.zeros_like(begin), 1 + positions, 1 + places + depths], dim=1)
    seen = torch.stack([_list_seen(tree, shared, longest) for tree in trees])[:, None]
    states = decoder(
        inputs_embeds=states,
        position_ids=numbers,
        attention_mask=torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min),
        use_cache=False,
    ).last_hidden_state
    rows = [row for row, tree in enumerate(trees) for _ in tree.spots]
    columns = [shared + spot for tree in trees for spot in tree.spots]
    logits: Tensor = llava.lm_head(states[rows, columns])
    return logits


def _list_seen(tree: TextTree, shared: int, longest: int) -> Tensor:
    """Who sees whom, bool; the image is causal, rows of padding see the image."""
    seen = torch.zeros(shared + longest, shared + longest, dtype=torch.bool)
    seen[:shared, :shared] = torch.ones(shared, shared).tril().bool()
    seen[shared:, :shared] = True
    for node, parent in enumerate(tree.parents):  # parents come before their children
        row = seen[shared + node]
        if parent >= 0:
            row |= seen[shared + parent]
        row[shared + node] = True
    return seen
