"""Settings shared by all tests."""

import gc
import os

from hypothesis import settings

# Tiny models gain nothing from threads; the tests run in several processes instead.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Some virtual machines announce AMX and then refuse it: bfloat16 products would crash the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# The same examples on every run: a failure found once is found again.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("repeatable")

# Modules and tests stay until the end. To look through all of them for garbage again and again took
# a fifth of the time of collecting them, and half a second whenever a test asked for it.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
