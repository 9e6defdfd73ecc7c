"""Answer a question about an image with all visual tokens and with a few of them.

python examples/prune_a_model.py
python examples/prune_a_model.py --model llava-hf/llava-1.5-7b-hf --image cat.png --question "..."
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from PIL import Image

import tokencover as tc
from tokencover_models.pebble.data import draw_scene, make_scene


def main() -> None:
    """Answer twice and print what was saved."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="pebble", help="pebble, a local path or a Hub ID")
    parser.add_argument("--image", help="an image (default: a synthetic scene)")
    parser.add_argument("--question", default="which color is most common ?")
    parser.add_argument("--budget", type=int, default=64, help="visual tokens to keep")
    options = parser.parse_args()

    model, processor = tc.load(options.model)
    image = Image.open(options.image) if options.image else draw_scene(make_scene(7))
    inputs = tc.make_inputs(processor, [([image], options.question)]).to(model.device)

    print("all tokens:", answer(model, processor, inputs))
    with tc.prune(model, tc.MoB(options.budget), processor=processor) as run:
        print("pruned:    ", answer(model, processor, inputs))

    trace = run.trace[0]
    print(f"kept {len(trace.kept)} of {trace.visual_tokens} visual tokens:")
    print(f"  for the prompt: {len(trace.prompt_centers)}")
    print(f"  to cover the image: {len(trace.visual_centers)}")
    print(f"  prefill FLOPs: {trace.flops / trace.flops_unpruned:.0%}")


def answer(model: Any, processor: Any, inputs: Any) -> str:
    """Return the text that the model generates."""
    with torch.inference_mode():
        tokens = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    words = processor.decode(tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return str(words).strip()


if __name__ == "__main__":
    main()
