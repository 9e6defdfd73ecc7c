"""Opening the studio: which models, on which address, with which bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tokencover.errors import InputError
from tokencover.extras import import_extra

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
MEGABYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StudioSettings:
    """How the studio is opened.

    Attributes
    ----------
    model : str
        "pebble" (with pebble-clips for clips), a folder or a hub name.
    device, dtype : str or None
        As `tokencover.loading.load` takes them.
    options : mapping
        Its remaining arguments: quantization, attn_implementation, ...
    host : str
        Address to listen on; any but this computer's own makes the page public in its network.
    port : int
        Where; 0 for any that is free.
    most_megabytes : int
        Larger uploads are refused.
    most_pixels : int
        Pictures with more are refused before they are unpacked.
    longest_answer : int
        Tokens.
    """

    model: str = "pebble"
    device: str | None = None
    dtype: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 7860
    most_megabytes: int = 20
    most_pixels: int = 50_000_000
    longest_answer: int = 32

    def __post_init__(self) -> None:
        for name in ("most_megabytes", "most_pixels", "longest_answer"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 <= self.port < 2**16:
            raise InputError(f"a port is a number from 0 to 65535, got {self.port}.")


def open_studio(
    settings: StudioSettings, *, tell_address: Callable[[str], None], wait: bool = True
) -> Any:
    """Load the model, open the page, and stay until it is stopped.

    Parameters
    ----------
    settings : StudioSettings
        What to open.
    tell_address : callable
        Gets the page's address when it is there.
    wait : bool
        False returns at once; the page is then open until its ``close()`` is called.

    Returns
    -------
    gradio.Blocks
        The page.
    """
    _require_gradio()
    import gradio as gr

    from tokencover.studio.studio_page import STYLE, make_page

    page = make_page(_make_desks(settings))
    font = ["ui-sans-serif", "system-ui", "sans-serif"]
    try:
        _, address, _ = page.launch(
            server_name=settings.host,
            server_port=settings.port or _find_free_port(settings.host),
            prevent_thread_lock=True,
            share=False,
            quiet=True,
            show_error=False,
            max_file_size=settings.most_megabytes * MEGABYTE,
            ssr_mode=False,
            footer_links=["api"],
            theme=gr.themes.Default(font=font, font_mono=["ui-monospace", "monospace"]),
            css=STYLE,
        )
    except OSError as error:
        raise InputError(
            f"the page cannot be opened at {settings.host}:{settings.port}: {error}. Give another "
            "--port, or 0 for any that is free."
        ) from error
    tell_address(address)
    if wait:
        try:
            page.block_thread()
        finally:
            page.close()
    return page


def _require_gradio() -> None:
    import_extra("gradio", "the studio", "tokencover[studio]", "use `tokencover ask`")


def _make_desks(settings: StudioSettings) -> Any:
    from tokencover.loading import load
    from tokencover.studio.model_desk import ModelDesk
    from tokencover.studio.studio_desks import Desks, list_media

    def load_desk(name: str) -> ModelDesk:
        model, processor = load(
            name, device=settings.device, dtype=settings.dtype, **settings.options
        )
        return ModelDesk(name, model, processor, longest=settings.longest_answer)

    if settings.model == "pebble":
        first = load_desk("pebble")
        loaders: dict[str, Callable[[], ModelDesk]] = {
            "picture": lambda: first,
            "clip": lambda: load_desk("pebble-clips"),
        }
    else:
        first = load_desk(settings.model)
        loaders = {medium: lambda: first for medium in list_media(tuple(first.kinds))}
    return Desks(settings.model, loaders, most_pixels=settings.most_pixels)


def _find_free_port(host: str) -> int:
    import socket

    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
