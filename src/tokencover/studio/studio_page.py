"""The studio's page, laid out with Gradio: what is on it, and what happens when it is touched."""

from __future__ import annotations

from html import escape
from typing import Any, Final

import gradio as gr

from tokencover.studio.setup_link import OWN
from tokencover.studio.studio_desks import Desks
from tokencover.studio.studio_events import LINK_LABEL, NO_METHOD, PageEvents

QUEUE: Final = 64
"""Questions that may wait; the next one is told to come back."""
SPLITS: Final = ("paper", "auto", "balanced", "strong", "weak")
STYLE: Final = """
.tc-answer table, .tc-answer tr, .tc-answer th, .tc-answer td { border: 0 !important; }
.tc-answer table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.tc-answer th { text-align: left; font-weight: 400; padding: 3px 14px 3px 0; opacity: .7;
  white-space: nowrap; vertical-align: top; }
.tc-answer td { padding: 3px 0; overflow-wrap: anywhere; }
.tc-answer td[data-verdict] { font-weight: 600; }
.tc-answer td[data-verdict]::after { font-weight: 400; margin-left: .6em; opacity: .85; }
[data-verdict="right"] { --tc: #15803d; } [data-verdict="wrong"] { --tc: #c62828; }
[data-verdict="other"] { --tc: #7c3aed; }
.dark [data-verdict="right"] { --tc: #4ade80; } .dark [data-verdict="wrong"] { --tc: #f87171; }
.dark [data-verdict="other"] { --tc: #c4a7ff; }
.tc-answer td[data-verdict], .tc-key em { color: var(--tc); font-style: normal; }
td[data-verdict="right"]::after { content: "right"; }
td[data-verdict="wrong"]::after { content: "wrong"; }
td[data-verdict="same"]::after { content: "same as unpruned"; }
td[data-verdict="other"]::after { content: "differs from unpruned"; }
.tc-words span { display: inline-block; margin: 0 6px 4px 0; padding: 0 6px;
  border: 1px solid #ff8c00; border-radius: 9px; }
.tc-title { font-size: 1.05em; margin: 0 0 4px; overflow-wrap: anywhere; }
.tc-caption { margin: 8px 0 2px; opacity: .7; }
.tc-layers { display: flex; align-items: flex-end; gap: 2px; }
.tc-layers span { flex: 1; max-width: 38px; font-size: 11px; text-align: center; }
.tc-layers i { background: #0078ff; display: block; }
.tc-key { line-height: 1.8; } .tc-key span { display: inline-block; margin-right: 14px; }
.tc-key b { display: inline-block; width: 12px; height: 12px; margin: 0 5px 0 0; }
.tc-key em { font-weight: 600; }
.tc-notice { border-left: 4px solid #d97706; padding: 6px 12px; margin: 0;
  background: color-mix(in srgb, #d97706 12%, transparent); }
.tc-plain { display: flex; flex-wrap: wrap; gap: 12px; }
.tc-plain svg { width: 480px; max-width: 100%; }
#opened:not(:has(p)), #notice:not(:has(p)), #film:not(:has(img)) { display: none; }
@media (max-width: 768px) { #results { order: -1; } }
"""
KEY: Final = (
    '<p class="tc-key"><span><b style="background:#ff8c00"></b>chosen for the question</span>'
    '<span><b style="background:#0078ff"></b>chosen to cover the rest</span>'
    '<span><b style="background:#d6008c"></b>kept (the method does not say what for)</span>'
    "<span>faded: dropped</span></p>"
    '<p class="tc-key">Answers: <span><em data-verdict="right">right</em> or '
    '<em data-verdict="wrong">wrong</em> by the reference answer of a drawn scene</span>'
    "<span>without one: <em>same as unpruned</em> or "
    '<em data-verdict="other">differs from unpruned</em></span></p>'
)


def _make_picture_drop(**look: Any) -> gr.Image:
    """A place to drop a picture: what is dropped is opened by us, who say what is wrong with it."""
    drop = gr.Image(sources=["upload", "clipboard"], elem_id="picture", **look)
    # Not a subclass: for those Gradio writes a stub beside the source, which may be read-only.
    drop.preprocess = _find_path
    return drop


def _find_path(payload: Any) -> str | None:
    return None if payload is None else str(payload.path)


def make_page(desks: Desks) -> gr.Blocks:
    """Lay out the page for some models.

    Parameters
    ----------
    desks : Desks
        Answers what visitors ask.
    """
    with gr.Blocks(
        title="tokencover studio", analytics_enabled=False, delete_cache=(3600, 3600)
    ) as page:
        about = " or ".join(f"a {medium}" for medium in desks.media)
        gr.Markdown(
            f"# tokencover studio\nAsk **{escape(desks.model_name)}** about {about}, and see "
            "which visual tokens it was left with."
        )
        with gr.Row():
            with gr.Column(scale=1, min_width=300):
                controls = _make_controls(desks)
            with gr.Column(scale=2, min_width=320, elem_id="results"):
                shown = _make_results(desks.media[0])
        PageEvents(desks, controls, shown).connect(page)
    page.queue(max_size=QUEUE, default_concurrency_limit=1)
    return page


def _make_controls(desks: Desks) -> dict[str, Any]:
    methods = desks.list_methods()
    kinds = desks.media
    made: dict[str, Any] = {
        "medium": gr.Radio(
            list(kinds), value=kinds[0], label="About a", visible=len(kinds) > 1, elem_id="medium"
        ),
        "picture": _make_picture_drop(
            label="Your picture (or none, for a drawn scene)",
            height=220,
            visible="picture" in kinds,
        ),
        "clip": gr.File(
            label="Your clip (or none, for a drawn one)",
            file_types=[".gif", ".webp", ".mp4", ".mov", ".webm", ".mkv", ".avi"],
            visible=kinds == ("clip",),
            elem_id="clip",
            height=150,
        ),
    }
    with gr.Row():
        made["scene"] = gr.Number(
            0, label="Scene", precision=0, minimum=0, elem_id="scene", min_width=90
        )
        made["fresh"] = gr.Button("Fresh scene", elem_id="fresh", min_width=110)
    made["question"] = gr.Textbox(
        label="Question", lines=1, max_length=2000, elem_id="question", placeholder="what is this ?"
    )
    made["asked"] = gr.Dropdown([], label="Questions about this scene", elem_id="asked")
    made["budget"] = gr.Slider(
        1, desks.most_tokens, 64, step=1, label="Visual tokens to keep", elem_id="budget"
    )
    made["method"] = gr.Dropdown(
        methods, value="mob", label="Method", allow_custom_value=True, elem_id="method"
    )
    made["other"] = gr.Dropdown(
        [NO_METHOD, *methods],
        value=NO_METHOD,
        label="Compare with",
        allow_custom_value=True,
        elem_id="other",
    )
    made["split"] = gr.Dropdown(
        list(SPLITS), value="paper", label="Split of MoB's budget", elem_id="split"
    )
    made["after"] = gr.Dropdown(
        [("the method's own", OWN), *((str(block), block) for block in range(desks.depth))],
        value=OWN,
        label="Blocks before pruning",
        elem_id="after",
    )
    made["ask"] = gr.Button("Ask", variant="primary", elem_id="ask")
    return made


def _make_results(medium: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "opened": gr.HTML(elem_id="opened"),
        "notice": gr.HTML(elem_id="notice"),
        "key": gr.HTML(KEY),
    }
    with gr.Row():
        for side in ("first", "second"):
            with gr.Column(min_width=300, visible=side == "first") as made[f"{side}_column"]:
                made[f"{side}_kept"] = gr.HTML(elem_id=f"{side}-kept")
                made[f"{side}_facts"] = gr.HTML(elem_id=f"{side}-facts")
    made["play"] = gr.Button("Play order of choice", elem_id="play", visible=medium == "picture")
    made["film"] = gr.HTML(elem_id="film")
    made["link"] = gr.Textbox(label=LINK_LABEL, interactive=False, elem_id="link")
    with gr.Row():
        made["picture_file"] = gr.DownloadButton("Picture", elem_id="picture-file")
        made["json_file"] = gr.DownloadButton("JSON", elem_id="json-file")
    return made
