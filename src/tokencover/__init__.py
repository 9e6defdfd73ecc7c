"""Faster vision-language models: keep only the visual tokens that matter.

Nothing is imported before it is used: `import tokencover` loads neither torch nor transformers. The
stub next to this file, which `make catalog` writes, tells editors and type checkers what there is.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tokencover.catalog import read_class_names
from tokencover.registry import suggest

__version__ = "0.2.0"

_EXPORTS = {
    "budget": ("BalancedSplit", "CouplingSplit", "OnlineSplit", "Split", "paper_split"),
    "catalog": ("register",),
    "covering": ("Cover", "coupling", "farthest_points", "mob", "nearest_points"),
    "errors": ("InputError", "TokenCoverError"),
    "loading": ("load",),
    "evaluation": ("Results", "evaluate"),
    "methods": (
        "METHODS",
        "BudgetedMethod",
        "Choice",
        "Method",
        "View",
        "from_json",
        "get_method",
        "to_json",
    ),
    "prompting": ("make_inputs",),
    "pruning": ("prune",),
    "theory": ("Certificate", "certify"),
}
"""Packages and their public names; the classes of methods come on top."""
_EXPORT_PACKAGE = {name: package for package, names in _EXPORTS.items() for name in names}
_EXPORT_PACKAGE.update(dict.fromkeys(read_class_names(), "methods"))
_TEST_MODELS = ("load_boulder", "load_pebble", "load_pebble_clips")
"""What the package ``tokencover-models`` has."""
__all__ = sorted([*_EXPORT_PACKAGE, *_TEST_MODELS])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _TEST_MODELS:
        value = getattr(_import_test_models(), name)
    elif name in _EXPORT_PACKAGE:
        value = getattr(import_module(f"{__name__}.{_EXPORT_PACKAGE[name]}"), name)
    elif find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    else:
        value = _get_uncataloged_method(name)
    globals()[name] = value
    return value


def _import_test_models() -> Any:
    from tokencover.errors import import_extra

    purpose, otherwise = "this test model", "load another model with tokencover.load"
    return import_extra("tokencover_models", purpose, "tokencover-models", otherwise)


def _get_uncataloged_method(name: str) -> Any:
    """The class of a method that the catalog does not know yet."""
    from tokencover.methods import METHODS

    for kind in METHODS.list_registered():
        if kind.__name__ == name and kind.__module__.startswith(f"{__name__}."):
            return kind
    hint = suggest(name, __all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return ["__version__", *__all__]
