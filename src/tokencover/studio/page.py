"""The studio's page in Gradio: its layout, and its events."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

import gradio as gr

from tokencover.colors import KEPT_COLOR, PROMPT_COLOR, VISUAL_COLOR, to_css
from tokencover.errors import TokenCoverError, TokenCoverWarning
from tokencover.studio.backend import StudioBackend, StudioRequest, StudioResult
from tokencover.studio.link import METHOD_DEFAULT, Setup, read_query, write_query

QUEUE: Final = 64
"""Maximum number of waiting questions."""
SPLITS: Final = ("paper", "auto", "balanced", "strong", "weak")
STYLE: Final = Template("""
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
  border: 1px solid $prompt; border-radius: 9px; }
.tc-title { font-size: 1.05em; margin: 0 0 4px; overflow-wrap: anywhere; }
.tc-caption { margin: 8px 0 2px; opacity: .7; }
.tc-layers { display: flex; align-items: flex-end; gap: 2px; }
.tc-layers span { flex: 1; max-width: 38px; font-size: 11px; text-align: center; }
.tc-layers i { background: $visual; display: block; }
.tc-key { line-height: 1.8; } .tc-key span { display: inline-block; margin-right: 14px; }
.tc-key b { display: inline-block; width: 12px; height: 12px; margin: 0 5px 0 0; }
.tc-key em { font-weight: 600; }
.tc-notice { border-left: 4px solid #d97706; padding: 6px 12px; margin: 0;
  background: color-mix(in srgb, #d97706 12%, transparent); }
.tc-plain { display: flex; flex-wrap: wrap; gap: 12px; }
.tc-plain svg { width: 480px; max-width: 100%; }
#opened:not(:has(p)), #notice:not(:has(p)), #film:not(:has(img)) { display: none; }
@media (max-width: 768px) { #results { order: -1; } }
""").substitute(prompt=to_css(PROMPT_COLOR), visual=to_css(VISUAL_COLOR))
KEY: Final = (
    f'<p class="tc-key"><span><b style="background:{to_css(PROMPT_COLOR)}"></b>chosen for the '
    f'question</span><span><b style="background:{to_css(VISUAL_COLOR)}"></b>chosen to cover the '
    f'rest</span><span><b style="background:{to_css(KEPT_COLOR)}"></b>kept (the method does not '
    "record what for)</span>"
    "<span>faded: dropped</span></p>"
    '<p class="tc-key">Answers: <span><em data-verdict="right">right</em> or '
    '<em data-verdict="wrong">wrong</em> by the reference answer of a drawn scene</span>'
    "<span>without one: <em>same as unpruned</em> or "
    '<em data-verdict="other">differs from unpruned</em></span></p>'
)


def _build_image_drop(**look: Any) -> gr.Image:
    """Build a place to drop an image; the file is opened by tokencover, for its error messages."""
    drop = gr.Image(sources=["upload", "clipboard"], elem_id="image", **look)
    # Not a subclass: for those Gradio writes a stub next to the source, which may be read-only.
    drop.preprocess = _get_path
    return drop


def _get_path(payload: Any) -> str | None:
    return None if payload is None else str(payload.path)


def build_page(backend: StudioBackend) -> gr.Blocks:
    """Build the page for a backend."""
    with gr.Blocks(
        title="tokencover studio", analytics_enabled=False, delete_cache=(3600, 3600)
    ) as page:
        media = " or ".join(
            ("an image" if each == "image" else "a video") for each in backend.media
        )
        gr.Markdown(
            f"# tokencover studio\nAsk **{escape(backend.model_name)}** about {media}, and see "
            "which visual tokens are kept."
        )
        with gr.Row():
            with gr.Column(scale=1, min_width=300):
                controls = _build_controls(backend)
            with gr.Column(scale=2, min_width=320, elem_id="results"):
                shown = _build_results(backend.media[0])
        PageEvents(backend, controls, shown).connect(page)
    page.queue(max_size=QUEUE, default_concurrency_limit=1)
    return page


def _build_controls(backend: StudioBackend) -> dict[str, Any]:
    methods = backend.list_methods()
    made: dict[str, Any] = {
        "medium": gr.Radio(
            list(backend.media),
            value=backend.media[0],
            label="About an",
            visible=len(backend.media) > 1,
            elem_id="medium",
        ),
        "image": _build_image_drop(
            label="Your image (or none, for a drawn scene)",
            height=220,
            visible="image" in backend.media,
        ),
        "video": gr.File(
            label="Your video (or none, for a drawn one)",
            file_types=[".gif", ".webp", ".mp4", ".mov", ".webm", ".mkv", ".avi"],
            visible=backend.media == ("video",),
            elem_id="video",
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
        1, backend.max_tokens, 64, step=1, label="Visual tokens to keep", elem_id="budget"
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
        [
            ("the method's own", METHOD_DEFAULT),
            *((str(layer), layer) for layer in range(backend.num_layers)),
        ],
        value=METHOD_DEFAULT,
        label="Layers before pruning",
        elem_id="after",
    )
    made["ask"] = gr.Button("Ask", variant="primary", elem_id="ask")
    return made


def _build_results(medium: str) -> dict[str, Any]:
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
    made["play"] = gr.Button("Play order of choice", elem_id="play", visible=medium == "image")
    made["film"] = gr.HTML(elem_id="film")
    made["link"] = gr.Textbox(label=LINK_LABEL, interactive=False, elem_id="link")
    with gr.Row():
        made["image_file"] = gr.DownloadButton("Image", elem_id="image-file")
        made["json_file"] = gr.DownloadButton("JSON", elem_id="json-file")
    return made


NO_METHOD: Final = "(none)"
"""The choice of no method to compare with."""
ADDRESS_BAR: Final = "(link) => { if (link) history.replaceState(null, '', link); return link; }"
LINK_LABEL: Final = "Link to this setup"
STALE: Final = """(kept) => {
  const views = (kept.match(/<svg.*?<\\/svg>/gs) || []).map((svg) => svg
    .replace(/<path[^>]*>/g, "").replace(/<rect.*?<\\/rect>/gs, "")
    .replace(/aria-label="[^"]*"/, 'aria-label="image"'));
  const note = '<p class="tc-title">The setup has changed: press Ask.</p>';
  const shown = views.length ? `${note}<div class="tc-plain">${views.join("")}</div>` : "";
  return [shown, "", "", "", "", null, null, "", ""];
}"""
"""Clears the results in the browser; the image stays, without tokens."""
MAX_DOWNLOADS: Final = 100
"""The files of this many answers are kept for downloads."""
SETUP_PARTS: Final = [field.name for field in fields(Setup) if field.name != "uploaded"]


class PageEvents:
    """Connects the page's controls and results with the backend."""

    def __init__(
        self, backend: StudioBackend, controls: dict[str, Any], shown: dict[str, Any]
    ) -> None:
        self._backend, self._controls, self._shown = backend, controls, shown
        self._parts = [controls[name] for name in SETUP_PARTS]
        self._inputs = [*self._parts, controls["image"], controls["video"]]
        sides = [f"{side}_{part}" for side in ("first", "second") for part in ("kept", "facts")]
        rest = ("link", "image_file", "json_file", "film", "notice")
        self._results = [shown[name] for name in (*sides, *rest)]
        self._outputs = [*self._results, shown["second_column"], controls["budget"]]
        self._folders: deque[Path] = deque()

    def connect(self, page: gr.Blocks) -> None:
        """Register all events."""
        controls = self._controls
        self._answer_after(controls["ask"].click, "ask")
        self._answer_after(controls["question"].submit)
        self._answer_after(controls["budget"].release)
        for name in ("method", "other", "split", "after"):
            self._answer_after(controls[name].input)
        asked, drops = controls["asked"], [controls["image"], controls["video"]]
        chosen = asked.select(lambda text: text, asked, controls["question"], api_name=False)
        self._answer_after(chosen.success)
        shown = [*drops, self._shown["play"]]
        controls["medium"].change(_show_drop, controls["medium"], shown, api_name=False)
        # A new scene brings its questions and asks the first; uploaded files are removed.
        scene = [controls["medium"], controls["scene"]]
        shown_scene = [asked, controls["question"], *drops, self._shown["opened"]]
        drawn = controls["fresh"].click(
            self._backend.draw_number, None, controls["scene"], api_name=False
        )
        renewals = [drawn.success, controls["scene"].submit, controls["medium"].input]
        for event in (*renewals, *(drop.clear for drop in drops)):
            renewed = event(self._show_scene, scene, shown_scene, api_name=False)
            renewed.failure(_clear, None, self._results, queue=False, api_name=False)
            self._answer_after(renewed.success)
        for drop in drops:
            changed = drop.upload(_hide_questions, None, [asked, shown_scene[-1]], api_name=False)
            self._answer_after(changed.success)
        self._clear_after_edits()
        self._shown["play"].click(self._play, self._inputs, self._shown["film"], api_name=False)
        loaded = [*self._parts, asked, self._shown["opened"]]
        opened = page.load(self._open_link, None, loaded, api_name=False)
        self._answer_after(opened.success)

    def _clear_after_edits(self) -> None:
        """Clear results of another setup as soon as it is edited, in the browser."""
        controls, kept = self._controls, self._shown["first_kept"]
        for name in ("question", "budget"):
            controls[name].input(None, kept, self._results, js=STALE, api_name=False)
        controls["scene"].input(_clear, None, self._results, queue=False, api_name=False)

    def _answer_after(self, event: Any, name: str | None = None) -> None:
        """Answer after an event, and put the setup into the address bar."""
        link = self._shown["link"]
        answered = event(
            self._answer,
            self._inputs,
            self._outputs,
            api_name=name or False,
            show_progress_on=self._shown["first_kept"],
        )
        answered.success(None, link, link, js=ADDRESS_BAR, api_name=False)
        answered.failure(_clear, None, self._results, queue=False, api_name=False)

    def _answer(self, request: gr.Request, *values: Any) -> list[Any]:
        with _show_errors():
            asked = _build_request(values)
            result = self._backend.answer(asked)
        address = str(request.headers.get("origin") or "").rstrip("/")
        link = f"{address}/?{write_query(asked.setup)}"
        note = " (your file is not in it)" if asked.setup.uploaded else ""
        return [
            *(part for side in result.sides for part in side),
            gr.update(value=link, label=f"{LINK_LABEL}{note}"),
            *self._write_files(result),
            "",
            _render_notice(self._backend.describe_upload(asked.setup)),
            gr.update(visible=bool(asked.setup.other)),
            _limit_slider(result.visual_tokens, asked.setup.budget),
        ]

    def _play(self, *values: Any) -> str:
        with _show_errors():
            return self._backend.play(_build_request(values))

    def _show_scene(self, medium: str, scene: Any) -> list[Any]:
        with _show_errors():
            questions = self._backend.list_questions(medium, int(scene or 0))
        first = questions[0]
        return [gr.update(choices=questions, value=first, visible=True), first, None, None, ""]

    def _open_link(self, request: gr.Request) -> list[Any]:
        backend = self._backend
        setup, faults = read_query(dict(request.query_params), backend.media)
        with _show_errors():
            questions = backend.list_questions(setup.medium, setup.scene)
        for fault in faults:
            gr.Warning(escape(fault))
        question = setup.question or questions[0]
        opened = ""
        if setup.uploaded:
            opened = (
                f"This link was made for an uploaded {setup.medium}, which is not in it. Drawn "
                f"scene {setup.scene} is shown instead. Upload the {setup.medium} to ask about it."
            )
        return [
            question,
            setup.medium,
            setup.scene,
            setup.method,
            setup.other or NO_METHOD,
            gr.update(value=setup.budget, maximum=max(setup.budget, backend.max_tokens)),
            setup.split,
            min(setup.after, backend.num_layers - 1),
            gr.update(choices=questions, value=question if question in questions else None),
            _render_notice(opened),
        ]

    def _write_files(self, result: StudioResult) -> tuple[str, str]:
        """Write the files to download."""
        folder = Path(tempfile.mkdtemp(prefix="tokencover-studio-"))
        image, document = folder / "kept.png", folder / "kept.json"
        result.sheet.save(image)
        document.write_text(json.dumps(result.facts, indent=2) + "\n", encoding="utf-8")
        self._folders.append(folder)
        while len(self._folders) > MAX_DOWNLOADS:
            shutil.rmtree(self._folders.popleft(), ignore_errors=True)
        return str(image), str(document)


@contextmanager
def _show_errors() -> Iterator[None]:
    """Show our errors and warnings as messages on the page."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TokenCoverWarning)
        try:
            yield
        except TokenCoverError as error:
            message = escape(str(error))
            raise gr.Error(message, title="That did not work", print_exception=False) from error
    for warning in caught:
        if issubclass(warning.category, TokenCoverWarning):
            gr.Info(escape(str(warning.message)))


def _build_request(values: Sequence[Any]) -> StudioRequest:
    question, medium, scene, method, other, budget, split, after, image, video = values
    setup = Setup(
        question=str(question or ""),
        medium=str(medium),
        scene=int(scene or 0),
        method=str(method or "mob"),
        other="" if other in (None, NO_METHOD) else str(other),
        budget=int(budget),
        split=str(split or "paper"),
        after=int(after),
        uploaded=int(bool(image if medium == "image" else video)),
    )
    return StudioRequest(setup, image=image, video=video)


def _limit_slider(tokens: int, budget: int) -> Any:
    """Limit the budget to the number of tokens; Gradio rejects a value beyond the end."""
    end = max(tokens, 1)
    return gr.update(maximum=end, value=end) if budget > end else gr.update(maximum=end)


def _show_drop(medium: str) -> tuple[Any, ...]:
    """Show the place to drop a file, and the button that plays the order of choice."""
    is_image = medium == "image"
    return tuple(gr.update(visible=each) for each in (is_image, not is_image, is_image))


def _clear() -> tuple[Any, ...]:
    """Return empty results, in the order of `PageEvents._results`."""
    return *[""] * 5, None, None, "", ""


def _hide_questions() -> tuple[Any, str]:
    """Hide questions about the drawn scene when a file is uploaded, and a note about a link."""
    return gr.update(value=None, visible=False), ""


def _render_notice(text: str) -> str:
    return f'<p class="tc-notice" role="status">{escape(text)}</p>' if text else ""
