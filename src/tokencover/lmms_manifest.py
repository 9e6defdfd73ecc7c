"""Announces our models to lmms-eval (entry point ``lmms_eval.models``).

Every user of lmms-eval loads this, so it imports nothing that takes time. Run as a module it prints
the folder of our tasks: ``lmms-eval --include_path $(python -m tokencover.lmms_manifest)``, or with
the name of a test model, ``python -m tokencover.lmms_manifest pebble``, that of its tasks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

TASKS = Path(__file__).parent / "evaluation" / "lmms" / "tasks"
"""Our tasks for lmms-eval."""


def list_models() -> Any:
    """The model ``tokencover``, by the path of its class: imported when it is chosen."""
    from lmms_eval.models.registry_v2 import ModelManifest

    path = "tokencover.evaluation.lmms.chat_model.PrunedChatModel"
    return ModelManifest(model_id="tokencover", chat_class_path=path)


def list_task_folders() -> list[Path]:
    """Return the folders of task files: ours, and those of test models."""
    from tokencover.bundled_models import MODELS

    found = [TASKS, *(entry.lmms_tasks for entry in MODELS if entry.lmms_tasks)]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    from tokencover.bundled_models import MODELS

    print(MODELS[sys.argv[1]].lmms_tasks if sys.argv[1:] else TASKS)
