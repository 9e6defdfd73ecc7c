"""What happens when something on the studio's page is touched."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Final

import gradio as gr

from tokencover.errors import TokenCoverError, TokenCoverWarning
from tokencover.studio.setup_link import Setup, read_query, write_query
from tokencover.studio.studio_desks import Desks, StudioPage, StudioRequest

NO_METHOD: Final = "(none)"
"""What stands in the list of methods to compare with, for none."""
ADDRESS_BAR: Final = "(link) => { if (link) history.replaceState(null, '', link); return link; }"
LINK_LABEL: Final = "Link to this setup"
STALE: Final = """(kept) => {
  const views = (kept.match(/<svg.*?<\\/svg>/gs) || []).map((svg) => svg
    .replace(/<path[^>]*>/g, "").replace(/<rect.*?<\\/rect>/gs, "")
    .replace(/aria-label="[^"]*"/, 'aria-label="image"'));
  const told = '<p class="tc-title">The setup has changed: press Ask.</p>';
  const shown = views.length ? `${told}<div class="tc-plain">${views.join("")}</div>` : "";
  return [shown, "", "", "", "", null, null, "", ""];
}"""
"""Clears the results in the browser, at once; the image stays, without tokens."""
DOWNLOADS: Final = 100
"""Files of so many answers wait for Gradio, which copies what it serves; then they are deleted."""
SETUP_PARTS: Final = (
    *("question", "medium", "scene", "method", "other"),
    *("budget", "split", "after"),
)


class PageEvents:
    """Answers what visitors do on the page.

    Parameters
    ----------
    desks : Desks
        Knows the models.
    controls, shown : dict
        The components that visitors touch, and those that show what came of it.
    """

    def __init__(self, desks: Desks, controls: dict[str, Any], shown: dict[str, Any]) -> None:
        self._desks, self._controls, self._shown = desks, controls, shown
        self._parts = [controls[name] for name in SETUP_PARTS]
        self._inputs = [*self._parts, controls["picture"], controls["clip"]]
        sides = [f"{side}_{part}" for side in ("first", "second") for part in ("kept", "facts")]
        others = ("link", "picture_file", "json_file", "film", "notice")
        self._results = [shown[name] for name in (*sides, *others)]
        self._outputs = [*self._results, shown["second_column"], controls["budget"]]
        self._folders: deque[Path] = deque()

    def connect(self, page: gr.Blocks) -> None:
        """Say what happens when something is touched."""
        controls = self._controls
        self._answer_after(controls["ask"].click, "ask")
        self._answer_after(controls["question"].submit)
        self._answer_after(controls["budget"].release)
        for name in ("method", "other", "split", "after"):
            self._answer_after(controls[name].input)
        asked, drops = controls["asked"], [controls["picture"], controls["clip"]]
        chosen = asked.select(lambda text: text, asked, controls["question"], api_name=False)
        self._answer_after(chosen.success)
        shown = [*drops, self._shown["play"]]
        controls["medium"].change(_show_drop, controls["medium"], shown, api_name=False)
        # A scene comes with its questions, and the first is asked; what was dropped before goes.
        about = [controls["medium"], controls["scene"]]
        told = [asked, controls["question"], *drops, self._shown["opened"]]
        drawn = controls["fresh"].click(
            self._desks.draw_number, None, controls["scene"], api_name=False
        )
        renewals = [drawn.success, controls["scene"].submit, controls["medium"].input]
        for event in (*renewals, *(drop.clear for drop in drops)):
            renewed = event(self._show_scene, about, told, api_name=False)
            renewed.failure(_clear, None, self._results, queue=False, api_name=False)
            self._answer_after(renewed.success)
        for drop in drops:
            changed = drop.upload(_hide_questions, None, [asked, told[-1]], api_name=False)
            self._answer_after(changed.success)
        self._clear_after_edits()
        self._shown["play"].click(self._play, self._inputs, self._shown["film"], api_name=False)
        loaded = [*self._parts, asked, self._shown["opened"]]
        opened = page.load(self._open_link, None, loaded, api_name=False)
        self._answer_after(opened.success)

    def _clear_after_edits(self) -> None:
        """Results of another setup go as soon as it is edited, in the browser and at once."""
        controls, kept = self._controls, self._shown["first_kept"]
        for name in ("question", "budget"):
            controls[name].input(None, kept, self._results, js=STALE, api_name=False)
        controls["scene"].input(_clear, None, self._results, queue=False, api_name=False)

    def _answer_after(self, event: Any, name: str | None = None) -> None:
        """Answer when something happened, and put the setup into the address bar."""
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
        with _tell_visitor():
            asked = _make_request(values)
            found = self._desks.answer(asked)
        link = f"{_find_address(request)}?{write_query(asked.setup)}"
        left_out = " (your file is not in it)" if asked.setup.uploaded else ""
        return [
            *(part for side in found.sides for part in side),
            gr.update(value=link, label=f"{LINK_LABEL}{left_out}"),
            *self._write_files(found),
            "",
            _render_notice(self._desks.describe_upload(asked.setup)),
            gr.update(visible=bool(asked.setup.other)),
            _end_slider(found.visual_tokens, asked.setup.budget),
        ]

    def _play(self, *values: Any) -> str:
        with _tell_visitor():
            return self._desks.play(_make_request(values))

    def _show_scene(self, medium: str, scene: Any) -> list[Any]:
        with _tell_visitor():
            questions = self._desks.list_questions(medium, int(scene or 0))
        first = questions[0]
        return [gr.update(choices=questions, value=first, visible=True), first, None, None, ""]

    def _open_link(self, request: gr.Request) -> list[Any]:
        desks = self._desks
        setup, faults = read_query(dict(request.query_params), desks.media)
        with _tell_visitor():
            questions = desks.list_questions(setup.medium, setup.scene)
        for fault in faults:
            gr.Warning(escape(fault))
        question = setup.question or questions[0]
        opened = ""
        if setup.uploaded:
            opened = (
                f"This link was made for an uploaded {setup.medium}, which is not in it: drawn "
                f"scene {setup.scene} is shown instead. Upload the {setup.medium} to ask about it."
            )
        return [
            question,
            setup.medium,
            setup.scene,
            setup.method,
            setup.other or NO_METHOD,
            gr.update(value=setup.budget, maximum=max(setup.budget, desks.most_tokens)),
            setup.split,
            min(setup.after, desks.depth - 1),
            gr.update(choices=questions, value=question if question in questions else None),
            _render_notice(opened),
        ]

    def _write_files(self, found: StudioPage) -> tuple[str, str]:
        """Files to download."""
        folder = Path(tempfile.mkdtemp(prefix="tokencover-studio-"))
        picture, told = folder / "kept.png", folder / "kept.json"
        found.sheet.save(picture)
        told.write_text(json.dumps(found.facts, indent=2) + "\n", encoding="utf-8")
        self._folders.append(folder)
        while len(self._folders) > DOWNLOADS:
            shutil.rmtree(self._folders.popleft(), ignore_errors=True)
        return str(picture), str(told)


@contextmanager
def _tell_visitor() -> Iterator[None]:
    """Errors of ours become a message on the page; notes about pictures do as well."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always", TokenCoverWarning)
        try:
            yield
        except TokenCoverError as error:
            told = escape(str(error))
            raise gr.Error(told, title="That did not work", print_exception=False) from error
    for note in noted:
        if issubclass(note.category, TokenCoverWarning):
            gr.Info(escape(str(note.message)))


def _make_request(values: Sequence[Any]) -> StudioRequest:
    question, medium, scene, method, other, budget, split, after, picture, clip = values
    setup = Setup(
        question=str(question or ""),
        medium=str(medium),
        scene=int(scene or 0),
        method=str(method or "mob"),
        other="" if other in (None, NO_METHOD) else str(other),
        budget=int(budget),
        split=str(split or "paper"),
        after=int(after),
        uploaded=int(bool(picture if medium == "picture" else clip)),
    )
    return StudioRequest(setup, picture=picture, clip=clip)


def _end_slider(tokens: int, budget: int) -> Any:
    """No more can be kept than there are; Gradio refuses a value beyond the end."""
    most = max(tokens, 1)
    return gr.update(maximum=most, value=most) if budget > most else gr.update(maximum=most)


def _show_drop(medium: str) -> tuple[Any, ...]:
    """The place to drop a file, and the button that plays the order of choice."""
    is_picture = medium == "picture"
    return tuple(gr.update(visible=each) for each in (is_picture, not is_picture, is_picture))


def _clear() -> tuple[Any, ...]:
    """Nothing in all of the results, in the order of `PageEvents._results`."""
    return *[""] * 5, None, None, "", ""


def _hide_questions() -> tuple[Any, str]:
    """Those about the drawn scene, when a file is uploaded; and what was said about a link."""
    return gr.update(value=None, visible=False), ""


def _render_notice(text: str) -> str:
    return f'<p class="tc-notice" role="status">{escape(text)}</p>' if text else ""


def _find_address(request: gr.Request) -> str:
    return str(request.headers.get("origin") or "").rstrip("/") + "/"
