"""One image passes through few files of the package on its way to the logits."""

from __future__ import annotations

from trace_the_path import trace_answer

import tokencover as tc

MOST_FILES = 26


def test_one_image_passes_through_few_files() -> None:
    files = [str(path) for path in trace_answer(tc.MoB(64))]
    assert len(files) <= MOST_FILES, f"{len(files)} files: {', '.join(files)}"
