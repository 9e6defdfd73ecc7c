"""``tokencover studio``: a web page to try pruning."""

from __future__ import annotations

from typing import Annotated, Final

from tokencover.cli.options import RUNNING, ModelArguments, Threads, option, shared_options
from tokencover.cli.values import parse_integer, validate_counts

SERVER: Final = "Page"
Host = Annotated[
    str,
    option("--host", "ADDRESS", "Address to listen on; 0.0.0.0 opens it to the network.", SERVER),
]
Port = Annotated[
    int, option("--port", "N", "Port to listen on; 0 for any free one.", SERVER, parse_integer)
]
MaxUpload = Annotated[
    int, option("--max-upload", "MB", "Maximum size of a file in MB.", SERVER, parse_integer)
]
MaxPixels = Annotated[
    int, option("--max-pixels", "N", "Maximum pixels of an image.", SERVER, parse_integer)
]
AnswerLength = Annotated[
    int, option("--max-new-tokens", "N", "Maximum tokens of an answer.", RUNNING, parse_integer)
]


@shared_options()
def open_page(
    source: ModelArguments,
    host: Host = "127.0.0.1",
    port: Port = 7860,
    max_upload: MaxUpload = 20,
    max_pixels: MaxPixels = 50_000_000,
    max_new_tokens: AnswerLength = 32,
    threads: Threads = None,
) -> None:
    """Open a web page to ask about an image and see which tokens are kept."""
    from tokencover.cli.process import set_threads
    from tokencover.studio import StudioSettings, open_studio

    limits = {"upload": max_upload, "pixels": max_pixels, "new-tokens": max_new_tokens}
    validate_counts({f"--max-{name}": limit for name, limit in limits.items()})
    set_threads(threads)
    settings = StudioSettings(
        model=source.model,
        device=source.device,
        dtype=source.dtype,
        options=source.parse_options(),
        host=host,
        port=port,
        max_megabytes=max_upload,
        max_pixels=max_pixels,
        max_new_tokens=max_new_tokens,
    )
    open_studio(settings, on_open=lambda address: print(f"the studio is open: {address}"))
