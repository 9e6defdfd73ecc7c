"""Draw which tokens were kept and which word selected them, as an image and a web page.

python examples/draw_kept_tokens.py      writes kept.png and kept.html
"""

from __future__ import annotations

from pathlib import Path

import tokencover as tc
from tokencover.visualization import as_seen, count_words, hover_html, panels, words_of_centers
from tokencover_models.pebble.data import draw_scene, make_scene


def main() -> None:
    """Answer one question and draw the kept tokens twice."""
    model, processor = tc.load("pebble")
    image, question = draw_scene(make_scene(7)), "is there a red star ?"
    inputs = tc.make_inputs(processor, [([image], question)])
    with tc.prune(model, tc.MoB(budget=64), processor=processor) as run:
        model.generate(**inputs, max_new_tokens=4)

    trace = run.trace[0]
    words = words_of_centers(trace, inputs["input_ids"], processor)
    for word, count in count_words(words):
        print(f"{word}: {count} tokens")

    seen = as_seen(image, processor)  # some processors crop the center
    panels([seen], trace, words, title=question).save("kept.png")
    Path("kept.html").write_text(hover_html(seen, trace, words), encoding="utf-8")
    print("written: kept.png, kept.html")


if __name__ == "__main__":
    main()
