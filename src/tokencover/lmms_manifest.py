"""Announces our models to lmms-eval (entry point ``lmms_eval.models``).

Every user of lmms-eval loads this, so it imports nothing that takes time. Run as a module it prints
the folder of our tasks: ``lmms-eval --include_path $(python -m tokencover.lmms_manifest)``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

TASKS = Path(__file__).parent / "evaluation" / "lmms" / "tasks"
"""Our tasks for lmms-eval."""


def list_models() -> Any:
    """The model ``tokencover``, by the path of its class: imported when it is chosen."""
    from lmms_eval.models.registry_v2 import ModelManifest

    path = "tokencover.evaluation.lmms.chat_model.PrunedChatModel"
    return ModelManifest(model_id="tokencover", chat_class_path=path)


if __name__ == "__main__":
    print(TASKS)
