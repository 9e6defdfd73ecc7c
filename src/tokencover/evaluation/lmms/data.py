"""Data of our own tasks for lmms-eval: Video-LLaVA's questions about videos.

lmms-eval imports this when a task of `tasks/` is chosen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import datasets
from lmms_eval.api.task import ConfigurableMessagesTask

from tokencover.errors import LoadError

VIDEO_FOLDER: Final = "TOKENCOVER_VIDEO_QA"
"""Environment variable with the folder of Video-LLaVA's evaluation data."""
FORMATS: Final = (".mp4", ".webm", ".mkv", ".avi", ".mov", ".gif")


class LocalTask(ConfigurableMessagesTask):  # type: ignore[misc]
    """A task whose documents are not on the Hugging Face Hub."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        own = {key: value for key, value in config.items() if key != "class"}
        super().__init__(config=own, model_name="tokencover")

    def download(self, dataset_kwargs: Mapping[str, Any] | None = None) -> None:
        """Build the documents."""
        rows = list(self.make_documents(dataset_kwargs or {}))
        split = self.config.test_split
        self.dataset = datasets.DatasetDict({split: datasets.Dataset.from_list(rows)})
        self.dataset_no_image = self.dataset

    def make_documents(self, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Iterate over the documents; `settings` are the task file's ``dataset_kwargs``."""
        raise NotImplementedError


class VideoQuestions(LocalTask):
    """A folder of Video-LLaVA's evaluation data: ``test_q.json``, ``test_a.json`` and videos."""

    def make_documents(self, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Questions with answer and path of the video."""
        folder = get_video_folder() / self.config.dataset_path
        questions, answers = (_read_list(folder / f"test_{part}.json") for part in "qa")
        references = {str(each["question_id"]): str(each["answer"]) for each in answers}
        for each in questions:
            name = str(each["question_id"])
            if name not in references:
                raise LoadError(f"{folder / 'test_a.json'} has no answer to question {name}.")
            yield {
                "question_id": name,
                "video_name": str(each["video_name"]),
                "question": str(each["question"]),
                "answer": references[name],
                "video": get_video_path(folder / settings["videos"], str(each["video_name"])),
            }


def get_video_folder() -> Path:
    """Return the folder of Video-LLaVA's evaluation data."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    named = os.environ.get(VIDEO_FOLDER)
    return (home / "GPT_Zero_Shot_QA" if named is None else Path(named)).expanduser()


def get_video_path(folder: Path, name: str) -> str:
    """Return the path of a video of any format; of an MP4 file if there is none."""
    paths = [folder / f"{name}{ending}" for ending in FORMATS]
    return str(next((path for path in paths if path.is_file()), paths[0]))


def _read_list(path: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{path} cannot be read ({error}): put Video-LLaVA's evaluation data there, or set "
            f"{VIDEO_FOLDER} to its folder GPT_Zero_Shot_QA; see docs/research/reproducing.md."
        ) from error
    if not isinstance(rows, list):
        raise LoadError(f"{path} is not a list of questions.")
    return rows
