"""Pruning methods, one file each; `base` and `view` define what a method returns and reads.

The class of every method is a name of this package, ``tokencover.methods.FastV``. None is listed
here: a method is registered in its file, and every module of this folder is imported.
"""

import importlib
import pkgutil

from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import (
    ActsOnce,
    BeforeDecoder,
    BudgetedMethod,
    Card,
    Choice,
    Details,
    LazyValue,
    Method,
    Positions,
    View,
    VisionMerge,
    VisionOutputs,
    VisionView,
    validate_layer_idx,
)
from tokencover.methods.registry import (
    METHODS,
    Spec,
    from_json,
    get_method,
    list_settings,
    make_method,
    name_method,
    parse_method,
    parse_methods,
    register_method,
    to_json,
)

__all__ = [
    "METHODS",
    "ActsOnce",
    "BeforeDecoder",
    "BudgetedMethod",
    "Card",
    "Choice",
    "Details",
    "LazyValue",
    "Method",
    "Positions",
    "Spec",
    "View",
    "VisionMerge",
    "VisionOutputs",
    "VisionView",
    "choose_best",
    "from_json",
    "get_method",
    "list_settings",
    "make_method",
    "name_method",
    "parse_method",
    "parse_methods",
    "register_method",
    "to_json",
    "validate_layer_idx",
]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
_classes = {kind.__name__: kind for kind in METHODS.list_registered()}
globals().update(_classes)
__all__.extend(_classes)
