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

from tokencover.errors import TokenCoverError, UserNote
from tokencover.studio.setup_link import Setup, read_query, write_query
from tokencover.studio.studio_desks import Desks, StudioPage, StudioRequest

NO_METHOD: Final = "(none)"
"""What stands in the list of methods to compare with, for none."""
ADDRESS_BAR: Final = "(link) => { if (link) history.replaceState(null, '', link); return link; }"
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
        others = ("link", "picture_file", "json_file", "second_column")
        self._outputs = [*(shown[name] for name in (*sides, *others)), controls["budget"]]
        self._folders: deque[Path] = deque()

    def connect(self, page: gr.Blocks) -> None:
        """Say what happens when something is touched."""
        controls = self._controls
        self._answer_after(controls["ask"].click, "ask")
        self._answer_after(controls["question"].submit)
        self._answer_after(controls["budget"].release)
        for name in ("method", "other", "split", "after"):
            self._answer_after(controls[name].input)
        asked = controls["asked"]
        chosen = asked.input(lambda text: text, asked, controls["question"], api_name=False)
        self._answer_after(chosen.then)
        drops = [controls["picture"], controls["clip"]]
        controls["medium"].change(_show_drop, controls["medium"], drops, api_name=False)
        # A scene comes with its questions, and the first is asked; what was dropped before goes.
        about = [controls["medium"], controls["scene"]]
        told = [asked, controls["question"], *drops]
        drawn = controls["fresh"].click(
            self._desks.draw_number, None, controls["scene"], api_name=False
        )
        for event in (drawn.then, controls["scene"].submit, controls["medium"].input):
            self._answer_after(event(self._show_scene, about, told, api_name=False).then)
        for drop in drops:
            self._answer_after(drop.upload)
        self._shown["play"].click(self._play, self._inputs, self._shown["film"], api_name=False)
        opened = page.load(self._open_link, None, [*self._parts, asked], api_name=False)
        self._answer_after(opened.then)

    def _answer_after(self, event: Any, name: str | None = None) -> None:
        """Answer when something happened, and put the setup into the address bar."""
        link = self._shown["link"]
        answered = event(self._answer, self._inputs, self._outputs, api_name=name or False)
        answered.success(None, link, link, js=ADDRESS_BAR, api_name=False)

    def _answer(self, request: gr.Request, *values: Any) -> list[Any]:
        with _tell_visitor():
            asked = _make_request(values)
            found = self._desks.answer(asked)
        link = f"{_find_address(request)}?{write_query(asked.setup)}"
        return [
            *(part for side in found.sides for part in side),
            link,
            *self._write_files(found),
            gr.update(visible=bool(asked.setup.other)),
            _end_slider(found.visual_tokens, asked.setup.budget),
        ]

    def _play(self, *values: Any) -> str:
        with _tell_visitor():
            return self._desks.play(_make_request(values))

    def _show_scene(self, medium: str, scene: Any) -> list[Any]:
        with _tell_visitor():
            questions = self._desks.list_questions(medium, int(scene or 0))
        first = questions[0] if questions else ""
        return [gr.update(choices=questions, value=None), first, None, None]

    def _open_link(self, request: gr.Request) -> list[Any]:
        desks = self._desks
        setup, faults = read_query(dict(request.query_params), desks.media)
        with _tell_visitor():
            questions = desks.list_questions(setup.medium, setup.scene)
        for fault in faults:
            gr.Warning(escape(fault))
        return [
            setup.question or (questions[0] if questions else ""),
            setup.medium,
            setup.scene,
            setup.method,
            setup.other or NO_METHOD,
            gr.update(value=setup.budget, maximum=max(setup.budget, desks.most_tokens)),
            setup.split,
            min(setup.after, desks.depth - 1),
            gr.update(choices=questions, value=None),
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
        warnings.simplefilter("always", UserNote)
        try:
            yield
        except TokenCoverError as error:
            told = escape(str(error))
            raise gr.Error(told, title="That did not work", print_exception=False) from error
    for note in noted:
        if issubclass(note.category, UserNote):
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
    )
    return StudioRequest(setup, picture=picture, clip=clip)


def _end_slider(tokens: int, budget: int) -> Any:
    """No more can be kept than there are; Gradio refuses a value beyond the end."""
    most = max(tokens, 1)
    return gr.update(maximum=most, value=most) if budget > most else gr.update(maximum=most)


def _show_drop(medium: str) -> tuple[Any, Any]:
    return gr.update(visible=medium == "picture"), gr.update(visible=medium == "clip")


def _find_address(request: gr.Request) -> str:
    return str(request.headers.get("origin") or "").rstrip("/") + "/"
