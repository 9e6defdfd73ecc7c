"""Miniatures of all 14 data sets, as a download leaves them, and no way to the network."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Set before anything imports `datasets`, which reads them once.
_FOLDER = tempfile.TemporaryDirectory(prefix="tokencover-miniatures-")
HOME = Path(_FOLDER.name)
os.environ.update(HF_HOME=str(HOME), HF_HUB_OFFLINE="1", HF_TOKEN="none")
for _key in ("HF_DATASETS_CACHE", "OPENAI_API_KEY", "AZURE_API_KEY", "TOKENCOVER_VIDEO_QA"):
    os.environ.pop(_key, None)


@pytest.fixture(scope="session", autouse=True)
def miniatures() -> Iterator[Path]:
    """Write them once, and remove them at the end."""
    script = Path(__file__).parents[1] / "tools" / "write_miniatures.py"
    subprocess.run([sys.executable, str(script), str(HOME)], check=True, capture_output=True)
    yield HOME
    _FOLDER.cleanup()
