"""Reading what the encoder was called with; what is missing is said with the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from tokencover.errors import InputError
from tokencover.runtime.family import Media


def required(arguments: Mapping[str, Any], *names: str) -> Any:
    """Give the first of these arguments that was passed; the names are of one and the same."""
    for name in names:
        if arguments.get(name) is not None:
            return arguments[name]
    given = ", ".join(sorted(name for name, value in arguments.items() if value is not None))
    raise InputError(
        f"the model was called without {names[0]} (only with: {given or 'nothing'}), so the grid "
        f"of its visual tokens is unknown; pass all that the processor returns, {names[0]} too"
    )


def pixels(arguments: Mapping[str, Any], axes: str, *names: str) -> Tensor:
    """Give the pixels, checked to have these axes.

    Parameters
    ----------
    axes : str
        Names of the axes, split by spaces, as in ``"images channels height width"``.
    """
    values: Tensor = required(arguments, *names)
    if values.ndim != len(axes.split()):
        raise InputError(
            f"{names[0]} has shape {tuple(values.shape)}, but this family takes ({axes}); "
            f"pass them as the processor returns them"
        )
    return values


def rows_of_integers(values: Any) -> list[list[int]]:
    """Read sizes or grids from a tensor, an array or nested sequences."""
    if isinstance(values, Tensor):  # one copy from the device instead of one a number
        values = values.tolist()
    return [[int(number) for number in row] for row in values]


def setting(media: Media, arguments: Mapping[str, Any], name: str) -> Any:
    """Give what the call says, else what the configuration says, as the models do."""
    value = arguments.get(name)
    return value if value is not None else getattr(media.config, name, None)


def patch_grid(media: Media, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of the patches that the vision tower cuts from a picture."""
    size: int | Sequence[int] = media.config.vision_config.patch_size
    patch_height, patch_width = (size, size) if isinstance(size, int) else size
    return height // patch_height, width // patch_width


def square_side(rows: int, columns: int) -> int:
    """The side of a square of patches; models that fold patches know no other shape."""
    if rows != columns:
        raise InputError(
            f"a crop has {rows} x {columns} patches, but this model folds square crops only; "
            f"let its processor cut the picture into square crops"
        )
    return rows
