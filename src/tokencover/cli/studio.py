"""``tokencover studio``: a web page to try pruning."""

from __future__ import annotations

from typing import Annotated, Final

from tokencover.cli.options import RUNNING, ModelArguments, Threads, option, shared_options

SERVER: Final = "Page"


@shared_options()
def open_page(
    source: ModelArguments,
    host: Annotated[
        str,
        option("--host ADDRESS", "Address to listen on; 0.0.0.0 opens it to the network.", SERVER),
    ] = "127.0.0.1",
    port: Annotated[
        int, option("--port N", "Port to listen on; 0 for any free one.", SERVER)
    ] = 7860,
    max_upload: Annotated[
        int, option("--max-upload MB", "Maximum size of a file in MB.", SERVER, min=1)
    ] = 20,
    max_pixels: Annotated[
        int, option("--max-pixels N", "Maximum pixels of an image.", SERVER, min=1)
    ] = 50_000_000,
    max_new_tokens: Annotated[
        int, option("--max-new-tokens N", "Maximum tokens of an answer.", RUNNING, min=1)
    ] = 32,
    threads: Threads = None,
) -> None:
    """Open a web page to ask about an image and see which tokens are kept."""
    from tokencover.cli.process import set_threads
    from tokencover.studio import StudioSettings, open_studio

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
