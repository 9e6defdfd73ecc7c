"""The studio's page, laid out with Gradio: what is on it, and what happens when it is touched."""

from __future__ import annotations

from html import escape
from typing import Any, Final

import gradio as gr

from tokencover.studio.setup_link import OWN
from tokencover.studio.studio_desks import Desks
from tokencover.studio.studio_events import NO_METHOD, PageEvents

QUEUE: Final = 64
"""Questions that may wait; the next one is told to come back."""
SPLITS: Final = ("paper", "auto", "balanced", "strong", "weak")
STYLE: Final = """
.tc-answer table, .tc-answer tr, .tc-answer th, .tc-answer td { border: 0 !important; }
.tc-answer table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.tc-answer th { text-align: left; font-weight: 400; padding: 3px 14px 3px 0; opacity: .7;
  white-space: nowrap; vertical-align: top; }
.tc-answer td { padding: 3px 0; overflow-wrap: anywhere; }
.tc-answer[data-verdict="other"] tr:first-child td { color: #c2410c; font-weight: 600; }
.tc-answer[data-verdict="same"] tr:first-child td { color: #15803d; font-weight: 600; }
.tc-words span { display: inline-block; margin: 0 6px 4px 0; padding: 0 6px;
  border: 1px solid #ff8c00; border-radius: 9px; }
.dark .tc-answer[data-verdict="other"] tr:first-child td { color: #fb923c; }
.dark .tc-answer[data-verdict="same"] tr:first-child td { color: #4ade80; }
.tc-title { font-size: 1.05em; margin: 0 0 4px; overflow-wrap: anywhere; }
.tc-caption { margin: 8px 0 2px; opacity: .7; }
.tc-layers { display: flex; align-items: flex-end; gap: 2px; }
.tc-layers span { flex: 1; max-width: 38px; font-size: 11px; text-align: center; }
.tc-layers i { background: #0078ff; display: block; }
.tc-key { line-height: 1.8; } .tc-key span { display: inline-block; margin-right: 14px; }
.tc-key b { display: inline-block; width: 12px; height: 12px; margin: 0 5px 0 0; }
"""
KEY: Final = (
    '<p class="tc-key"><span><b style="background:#ff8c00"></b>chosen for the question</span>'
    '<span><b style="background:#0078ff"></b>chosen to cover the rest</span>'
    '<span><b style="background:#d6008c"></b>kept (the method does not say what for)</span>'
    "<span>faded: dropped</span></p>"
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
            with gr.Column(scale=2, min_width=320):
                shown = _make_results()
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


def _make_results() -> dict[str, Any]:
    made: dict[str, Any] = {"key": gr.HTML(KEY)}
    with gr.Row():
        for side in ("first", "second"):
            with gr.Column(min_width=300, visible=side == "first") as made[f"{side}_column"]:
                made[f"{side}_kept"] = gr.HTML(elem_id=f"{side}-kept")
                made[f"{side}_facts"] = gr.HTML(elem_id=f"{side}-facts")
    with gr.Accordion("Order of choice", open=False):
        made["play"] = gr.Button("Play: first prompt centres, then farthest points", elem_id="play")
        made["film"] = gr.HTML(elem_id="film")
    made["link"] = gr.Textbox(label="Link to this setup", interactive=False, elem_id="link")
    with gr.Row():
        made["picture_file"] = gr.DownloadButton("Picture", elem_id="picture-file")
        made["json_file"] = gr.DownloadButton("JSON", elem_id="json-file")
    return made
