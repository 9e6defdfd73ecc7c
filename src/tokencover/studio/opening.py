"""Open the studio: its models, address and limits."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tokencover.errors import InputError, import_extra

MEGABYTE: Final = 1024 * 1024
NUM_PORTS: Final = 2**16
DEFAULT_PORT: Final = 7860


@dataclass(frozen=True, slots=True)
class StudioSettings:
    """How to open the studio.

    `model` is "pebble" (with `pebble-clips` for videos), a local path or a Hugging Face Hub ID;
    `device`, `dtype` and `options` are arguments of `tokencover.loading.load`.
    """

    model: str = "pebble"
    device: str | None = None
    dtype: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    max_megabytes: int = 20
    max_pixels: int = 50_000_000
    max_new_tokens: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.port < NUM_PORTS:
            raise InputError(f"port must be from 0 to 65535, got {self.port}.")


def open_studio(
    settings: StudioSettings, *, on_open: Callable[[str], None], wait: bool = True
) -> Any:
    """Load the model, open the page, and serve it until it is stopped.

    `on_open` is called with the page's address. Without `wait` it returns at once, and the page is
    open until its ``close()`` is called.
    """
    import_extra("gradio", "the studio", "tokencover[studio]", "use `tokencover ask`")
    port = settings.port or get_free_port(settings.host)
    validate_port(settings.host, port)  # before a model is loaded
    import gradio as gr

    from tokencover.studio.page import STYLE, build_page

    page = build_page(_build_backend(settings))
    font = ["ui-sans-serif", "system-ui", "sans-serif"]
    try:
        _, address, _ = page.launch(
            server_name=settings.host,
            server_port=port,
            prevent_thread_lock=True,
            share=False,
            quiet=True,
            show_error=False,
            max_file_size=settings.max_megabytes * MEGABYTE,
            ssr_mode=False,
            footer_links=["api"],
            theme=gr.themes.Default(font=font, font_mono=["ui-monospace", "monospace"]),
            css=STYLE,
        )
    except OSError as error:
        validate_port(settings.host, port)  # another program may be using it now
        raise InputError(f"Cannot open the page at {settings.host}:{port}: {error}.") from error
    on_open(address)
    if wait:
        try:
            page.block_thread()
        finally:
            page.close()
    return page


def _build_backend(settings: StudioSettings) -> Any:
    from tokencover.loading import load
    from tokencover.studio.backend import MEDIA, StudioBackend, StudioModel

    def load_model(name: str) -> StudioModel:
        model, processor = load(
            name, device=settings.device, dtype=settings.dtype, **settings.options
        )
        return StudioModel(name, model, processor, max_new_tokens=settings.max_new_tokens)

    first = load_model(settings.model)
    loaders: dict[str, Callable[[], StudioModel]] = {
        medium: lambda: first for medium in MEDIA if medium in first.kinds
    }
    if settings.model == "pebble":
        loaders["video"] = lambda: load_model("pebble-clips")
    return StudioBackend(settings.model, loaders, max_pixels=settings.max_pixels)


def validate_port(host: str, port: int) -> None:
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
        other = port + 1 if 1024 <= port < NUM_PORTS - 1 else DEFAULT_PORT
        raise InputError(
            f"{problem} Choose another one, for example --port {other}, or --port 0 for any free "
            "port."
        ) from error


def get_free_port(host: str) -> int:
    """Return a port that is free now."""
    validate_port(host, 0)
    return _bind(host, 0)


def _bind(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        if os.name == "posix":  # as in servers: a port that was just closed is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        port_number: int = probe.getsockname()[1]
        return port_number
