"""Opening the studio: which models, on which address, with which bounds."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tokencover.errors import InputError
from tokencover.extras import import_extra

MEGABYTE: Final = 1024 * 1024
MOST_PORTS: Final = 2**16
USUAL_PORT: Final = 7860


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
    port: int = USUAL_PORT
    most_megabytes: int = 20
    most_pixels: int = 50_000_000
    longest_answer: int = 32

    def __post_init__(self) -> None:
        for name in ("most_megabytes", "most_pixels", "longest_answer"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 <= self.port < MOST_PORTS:
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
    port = settings.port or find_free_port(settings.host)
    check_port(settings.host, port)  # before a model is loaded
    import gradio as gr

    from tokencover.studio.studio_page import STYLE, make_page

    page = make_page(_make_desks(settings))
    font = ["ui-sans-serif", "system-ui", "sans-serif"]
    try:
        _, address, _ = page.launch(
            server_name=settings.host,
            server_port=port,
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
        check_port(settings.host, port)  # another program may have taken it meanwhile
        raise InputError(f"Cannot open the page at {settings.host}:{port}: {error}.") from error
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


def check_port(host: str, port: int) -> None:
    """Raise an error if the page cannot be opened at this port."""
    try:
        _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            problem = f"Port {port} of {host} is in use by another program."
        elif error.errno == errno.EACCES:
            problem = f"Port {port} of {host} requires administrator rights."
        else:
            raise InputError(
                f"Cannot listen on --host {host}, port {port}: {error.strerror or error}. Use an "
                "address of this computer, for example --host 127.0.0.1."
            ) from error
        other = port + 1 if 1024 <= port < MOST_PORTS - 1 else USUAL_PORT
        raise InputError(
            f"{problem} Choose another one, for example --port {other}, or --port 0 for any free "
            "port."
        ) from error


def find_free_port(host: str) -> int:
    """A port that is free now."""
    check_port(host, 0)
    return _bind(host, 0)


def _bind(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        if os.name == "posix":  # as servers do: a port that was just closed is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        found: int = probe.getsockname()[1]
        return found
