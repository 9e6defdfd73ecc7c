"""Runs methods on transformers models.

| file | what it does |
|---|---|
| `prune` | `tc.prune`; `Run` attaches hooks to a model and removes them |
| `call_inputs` | real, visual and prompt tokens of a call; masks of the caller |
| `passes` | one forward pass, what is kept of it, and the call that it is part of |
| `selection` | builds the `View` of a method, applies its `Choice`, writes the `Trace` |
| `trace` | what was kept of a sample |
| `prompt`, `chat_template` | locates the prompt tokens by the chat template |
| `hooks` | hooks that can be removed, and modules run outside of a pass |
| `internals` | names inside transformers and torch that pruning relies on |
| `tensor_parallel` | processes that share one model |
| `decoder/` | masks, positions and caches of shortened sequences |
| `attention/` | keys and attention weights on demand |
| `vision/` | reading the vision encoder, merging in it, caching its outputs |
"""

from tokencover.pruning.chat_template import FIRST_CONTROL, Reader, TokenLine
from tokencover.pruning.prompt import PromptLocator, mark_text
from tokencover.pruning.prune import Run, prune
from tokencover.pruning.tensor_parallel import TensorParallelGroup, get_tensor_parallel_group
from tokencover.pruning.trace import Trace
from tokencover.pruning.vision.encoder_memory import EncoderMemory

__all__ = [
    "FIRST_CONTROL",
    "EncoderMemory",
    "PromptLocator",
    "Reader",
    "Run",
    "TensorParallelGroup",
    "TokenLine",
    "Trace",
    "get_tensor_parallel_group",
    "mark_text",
    "prune",
]
