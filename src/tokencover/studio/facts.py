"""An answer as parts of a web page; every text is escaped."""

from __future__ import annotations

from html import escape
from typing import Any, Literal

from tokencover.prompting import Medium
from tokencover.pruning import Trace
from tokencover.visualization import Answer, count_words, hover_html

WORDS_SHOWN = 12
Verdict = Literal["right", "wrong", "same", "other"]
"""By the reference answer; without one, "same" or "other" than the unpruned answer."""
MAX_NUMBERED = 12
"""Number of layers whose bars are all numbered; of more, only changes are numbered."""


def render_answer(title: str, answer: Answer, plain: Answer, right: str) -> str:
    """Render the answer and its cost, next to the unpruned answer."""
    trace = answer.trace
    verdict = judge_answer(answer.text, plain.text, right)
    rows = [("answer", answer.text, verdict)]
    rows.append(("with all tokens", plain.text, judge_answer(plain.text, "", right)))
    if right:
        rows.append(("right", right, None))
    if trace is not None:
        rows += [(*each, None) for each in _list_costs(trace, answer, plain)]
    lines = "".join(_render_row(*each) for each in rows)
    return (
        f'<section class="tc-answer" data-verdict="{verdict}"><h3>{escape(title)}</h3>'
        f"<table>{lines}</table>{_render_words(answer)}{_render_layers(trace)}</section>"
    )


def judge_answer(text: str, plain: str, right: str) -> Verdict | None:
    """Compare an answer with the reference answer, or with the unpruned answer if there is none.

    None if neither is known.
    """
    if right:
        return "right" if _normalize(text) == _normalize(right) else "wrong"
    if not plain:
        return None
    return "same" if text == plain else "other"


def _normalize(text: str) -> str:
    return text.strip(" .,!?;:'\"").casefold()


def _render_row(name: str, text: str, verdict: Verdict | None) -> str:
    marked = "" if verdict is None else f' data-verdict="{verdict}"'
    return f"<tr><th>{escape(name)}</th><td{marked}>{escape(text)}</td></tr>"


def render_kept(title: str, medium: Medium, answer: Answer) -> str:
    """Render the image with the kept tokens."""
    if answer.trace is None:
        return ""
    head = f'<p class="tc-title"><b>{escape(title)}</b>: {escape(answer.text)}</p>'
    if len({index for index, _ in answer.trace.grids}) > 1:
        reason = "Nothing is drawn: the model does not record where its image tiles belong."
        return f"{head}<p>{reason}</p>"
    return head + hover_html(medium, answer.trace, answer.words)


def export_answer(question: str, method: str, answer: Answer, plain: Answer) -> dict[str, Any]:
    """Return the answer and its trace as plain values."""
    trace = answer.trace
    facts: dict[str, Any] = {
        "question": question,
        "method": method,
        "answer": answer.text,
        "answer_unpruned": plain.text,
        "seconds": answer.seconds,
        "seconds_unpruned": plain.seconds,
    }
    if trace is not None:
        facts["words"] = answer.words
        facts["trace"] = trace.to_dict()
    return facts


def _list_costs(trace: Trace, answer: Answer, plain: Answer) -> list[tuple[str, str]]:
    percentage = 100 * answer.seconds / plain.seconds
    seconds = f"{answer.seconds:.2f} s of {plain.seconds:.2f} s"
    rows = [
        ("tokens kept", f"{len(trace.kept)} of {trace.visual_tokens}"),
        ("mean per layer", f"{trace.mean_tokens:.1f}"),
        ("prefill FLOPs", f"{100 * trace.flops / trace.flops_unpruned:.1f} % of unpruned"),
        ("time to answer", f"{percentage:.0f} % of unpruned ({seconds})"),
    ]
    if trace.coupling is not None:
        group = trace.details.get("group")
        rows.append(("coupling η", f"{trace.coupling:.3f}" + (f", {group}" if group else "")))
    if trace.split is not None:
        # Prompt tokens may agree on visual tokens: what they do not use covers the rest.
        rows += [
            (
                "split",
                f"up to {split.prompt_budget} for the question, the others for the rest, "
                f"fold {split.fold}",
            )
            for split in trace.split
        ]
    return rows


def _render_words(answer: Answer) -> str:
    """Render the words behind the prompt centers, most first."""
    counted = count_words(answer.words)
    if not counted:
        return ""
    shown = " ".join(
        f"<span>{escape(word)} <b>{count}</b></span>" for word, count in counted[:WORDS_SHOWN]
    )
    return f'<p class="tc-words">chosen by word: {shown}</p>'


def _render_layers(trace: Trace | None) -> str:
    """Render bars with the number of tokens in each layer."""
    if trace is None:
        return ""
    most = max(1, trace.visual_tokens)
    counts = trace.tokens_per_layer
    is_short = len(counts) <= MAX_NUMBERED
    changes = [index == 0 or count != counts[index - 1] for index, count in enumerate(counts)]
    bars = "".join(
        f'<span title="layer {index + 1}: {count} tokens"><i style="height:'
        f'{max(1, 48 * count // most)}px"></i>{count if is_short or is_new else "&nbsp;"}</span>'
        for index, (count, is_new) in enumerate(zip(counts, changes, strict=True))
    )
    text = ", ".join(map(str, counts))
    return (
        '<p class="tc-caption">tokens per layer, first to last</p>'
        f'<div class="tc-layers" role="img" aria-label="tokens per layer: {text}">{bars}</div>'
    )
