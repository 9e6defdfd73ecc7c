"""The studio's page, laid out with Gradio: what is on it, and what happens when it is touched."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Final

import gradio as gr

from tokencover.errors import InputError, TokenCoverError, UserNote
from tokencover.studio.setup_link import OWN, Setup, read_query, write_query
from tokencover.studio.studio_desks import Desks, StudioRequest

QUEUE: Final = 64
"""Questions that may wait; the next one is told to come back."""
SPLITS: Final = ("paper", "auto", "balanced", "strong", "weak")
NO_METHOD: Final = "(none)"
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
.tc-layers { display: flex; align-items: flex-end; gap: 2px; height: 50px; }
.tc-layers i { flex: 1; max-width: 18px; background: #0078ff; display: block; }
.tc-key b { display: inline-block; width: 12px; height: 12px; margin: 0 4px 0 12px; }
"""
KEY: Final = (
    '<p class="tc-key"><b style="background:#ff8c00"></b>chosen for the question'
    '<b style="background:#0078ff"></b>chosen to cover the rest'
    '<b style="background:#d6008c"></b>kept (the method does not say what for)</p>'
)
ADDRESS_BAR: Final = "(link) => { if (link) history.replaceState(null, '', link); return link; }"


def _make_picture_drop(**look: Any) -> gr.Image:
    """A place to drop a picture: what is dropped is opened by us, who say what is wrong with it."""
    drop = gr.Image(sources=["upload", "clipboard"], elem_id="picture", **look)
    # Not a subclass: for those Gradio writes a stub beside the source, which may be read-only.
    drop.preprocess = _find_path
    return drop


def _find_path(payload: Any) -> str | None:
    return None if payload is None else str(payload.path)


@contextmanager
def _tell_visitor() -> Iterator[None]:
    """Errors of ours become a message on the page; notes about pictures do as well."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always", UserNote)
        try:
            yield
        except TokenCoverError as error:
            told = escape(str(error))
            raise gr.Error(told, title="That did not work", print_exception=False) from error
    for note in noted:
        if issubclass(note.category, UserNote):
            gr.Info(escape(str(note.message)))


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
        gr.Markdown(
            f"# tokencover studio\nAsk **{escape(desks.model_name)}** about a picture, and see "
            "which visual tokens it was left with."
        )
        with gr.Row():
            with gr.Column(scale=1, min_width=300):
                controls = _make_controls(desks)
            with gr.Column(scale=2, min_width=320):
                shown = _make_results()
        _connect(page, desks, controls, shown)
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
            height=100,
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


def _connect(
    page: gr.Blocks, desks: Desks, controls: dict[str, Any], shown: dict[str, Any]
) -> None:
    """Say what happens when something is touched."""
    setup_parts = [controls[name] for name in ("question", "medium", "scene", "method", "other")]
    setup_parts += [controls[name] for name in ("budget", "split", "after")]
    inputs = [*setup_parts, controls["picture"], controls["clip"]]

    def read_setup(values: Sequence[Any]) -> Setup:
        question, medium, scene, method, other, budget, split, after = values
        return Setup(
            question=str(question or ""),
            medium=str(medium),
            scene=int(scene or 0),
            method=str(method or "mob"),
            other="" if other in (None, NO_METHOD) else str(other),
            budget=int(budget),
            split=str(split or "paper"),
            after=int(after),
        )

    def make_request(values: Sequence[Any]) -> StudioRequest:
        return StudioRequest(read_setup(values[:-2]), picture=values[-2], clip=values[-1])

    def answer(request: gr.Request, *values: Any) -> list[Any]:
        with _tell_visitor():
            asked = make_request(values)
            found = desks.answer(asked)
        link = f"{_find_address(request)}?{write_query(asked.setup)}"
        picture, facts = _write_files(found.sheet, found.facts)
        return [
            *(part for side in found.sides for part in side),
            link,
            picture,
            facts,
            gr.update(maximum=max(found.visual_tokens, 1)),
            gr.update(visible=bool(asked.setup.other)),
        ]

    def play(*values: Any) -> str:
        with _tell_visitor():
            return desks.play(make_request(values))

    def list_questions(medium: str, scene: Any) -> Any:
        with _tell_visitor():
            return gr.update(choices=desks.list_questions(medium, int(scene or 0)), value=None)

    def open_link(request: gr.Request) -> list[Any]:
        setup, faults = read_query(dict(request.query_params))
        with _tell_visitor():
            if setup.medium not in desks.media:
                raise InputError(f"{desks.model_name} takes no {setup.medium}.")
            questions = desks.list_questions(setup.medium, setup.scene)
        for fault in faults:
            gr.Warning(escape(fault))
        return [
            setup.question or (questions[0] if questions else ""),
            setup.medium,
            setup.scene,
            setup.method,
            setup.other or NO_METHOD,
            min(setup.budget, desks.most_tokens),
            setup.split,
            min(setup.after, desks.depth - 1),
            gr.update(choices=questions, value=None),
        ]

    outputs = [
        *(shown[f"{side}_{part}"] for side in ("first", "second") for part in ("kept", "facts")),
        shown["link"],
        shown["picture_file"],
        shown["json_file"],
        controls["budget"],
        shown["second_column"],
    ]

    def answer_after(event: Any, name: str | None = None) -> None:
        """Answer when something happened, and put the setup into the address bar."""
        answered = event(answer, inputs, outputs, api_name=name or False)
        answered.success(None, shown["link"], shown["link"], js=ADDRESS_BAR, api_name=False)

    answer_after(controls["ask"].click, "ask")
    answer_after(controls["question"].submit)
    answer_after(controls["budget"].release)
    for name in ("method", "other", "split", "after"):
        answer_after(controls[name].input)
    chosen = controls["asked"].input(
        lambda question: question, controls["asked"], controls["question"], api_name=False
    )
    answer_after(chosen.then)
    controls["fresh"].click(desks.draw_number, None, controls["scene"], api_name=False)
    for name in ("scene", "medium"):
        controls[name].change(
            list_questions,
            [controls["medium"], controls["scene"]],
            controls["asked"],
            api_name=False,
        )
    controls["medium"].change(
        lambda medium: (
            gr.update(visible=medium == "picture"),
            gr.update(visible=medium == "clip"),
        ),
        controls["medium"],
        [controls["picture"], controls["clip"]],
        api_name=False,
    )
    shown["play"].click(play, inputs, shown["film"], api_name=False)
    opened = page.load(open_link, None, [*setup_parts, controls["asked"]], api_name=False)
    answer_after(opened.then)


def _find_address(request: gr.Request) -> str:
    return str(request.headers.get("origin") or "").rstrip("/") + "/"


def _write_files(sheet: Any, facts: dict[str, Any]) -> tuple[str, str]:
    """Files to download; Gradio copies them to its cache, which is emptied by the hour."""
    folder = Path(tempfile.mkdtemp(prefix="tokencover-studio-"))
    picture, told = folder / "kept.png", folder / "kept.json"
    sheet.save(picture)
    told.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return str(picture), str(told)
