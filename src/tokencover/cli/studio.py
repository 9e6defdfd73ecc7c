"""``tokencover studio``: a web page to try pruning on."""

from __future__ import annotations

from typing import Annotated

from tokencover.cli.options import (
    RUNNING,
    Attention,
    Device,
    Dtype,
    ModelName,
    ModelOptions,
    Quantization,
    Threads,
    check_counts,
    read_model_options,
    read_whole_number,
    take,
)

SERVER = "Page"
Host = Annotated[
    str,
    take("--host", "ADDRESS", "Where to listen; 0.0.0.0 opens the page to the network.", SERVER),
]
Port = Annotated[
    int, take("--port", "N", "At which port; 0 for any.", SERVER, read=read_whole_number)
]
MostMegabytes = Annotated[
    int,
    take("--max-upload", "MB", "Refuse larger files.", SERVER, read=read_whole_number),
]
MostPixels = Annotated[
    int,
    take("--max-pixels", "N", "Refuse larger pictures.", SERVER, read=read_whole_number),
]
LongestAnswer = Annotated[
    int,
    take("--max-new-tokens", "N", "Length of an answer.", RUNNING, read=read_whole_number),
]


def open_page(
    model: ModelName = "pebble",
    dtype: Dtype = None,
    device: Device = None,
    quantization: Quantization = None,
    attention: Attention = None,
    model_options: ModelOptions = None,
    host: Host = "127.0.0.1",
    port: Port = 7860,
    max_upload: MostMegabytes = 20,
    max_pixels: MostPixels = 50_000_000,
    max_new_tokens: LongestAnswer = 32,
    threads: Threads = None,
) -> None:
    """Open a web page: drop a picture, ask, and see which tokens are kept."""
    from tokencover.cli.threads import set_threads
    from tokencover.studio import StudioSettings, open_studio

    limits = {"upload": max_upload, "pixels": max_pixels, "new-tokens": max_new_tokens}
    check_counts({f"--max-{name}": limit for name, limit in limits.items()})
    set_threads(threads)
    settings = StudioSettings(
        model=model,
        device=device,
        dtype=dtype,
        options=read_model_options(quantization, attention, model_options),
        host=host,
        port=port,
        max_megabytes=max_upload,
        max_pixels=max_pixels,
        max_new_tokens=max_new_tokens,
    )
    open_studio(settings, on_open=lambda address: print(f"the studio is open: {address}"))
