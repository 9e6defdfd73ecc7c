"""Methods: one file each. `base` and `view` say what a method returns and what it may see."""

from tokencover.methods.base import (
    BudgetedMethod,
    Card,
    Choice,
    Encoded,
    Method,
    TowerChoice,
    TowerView,
    View,
    one_block,
)
from tokencover.methods.cdpruner import CDPruner
from tokencover.methods.dart import DART
from tokencover.methods.divprune import DivPrune
from tokencover.methods.downsample import Downsample
from tokencover.methods.farthest_only import FarthestOnly
from tokencover.methods.fastervlm import FasterVLM
from tokencover.methods.fastv import FastV
from tokencover.methods.ficoco import FiCoCoV
from tokencover.methods.final_wipe import FinalWipe
from tokencover.methods.globalcom2 import GlobalCom2
from tokencover.methods.hired import HiRED
from tokencover.methods.look_ahead import LookAhead
from tokencover.methods.mob import MoB
from tokencover.methods.mustdrop import MustDrop
from tokencover.methods.naming import Spec, name_method, parse_method, parse_methods
from tokencover.methods.nearest_only import NearestOnly
from tokencover.methods.prumerge import PruMerge, PruMergePlus
from tokencover.methods.pyramiddrop import PyramidDrop
from tokencover.methods.random_tokens import Random
from tokencover.methods.registry import Registry, to_json
from tokencover.methods.scope import SCOPE
from tokencover.methods.sparsevlm import SparseVLM
from tokencover.methods.tokencarve import TokenCarve
from tokencover.methods.tome import ToMe
from tokencover.methods.twigvlm import TwigVLM
from tokencover.methods.uniform_grid import UniformGrid
from tokencover.methods.visionzip import VisionZip

METHODS = Registry(
    [
        MoB,
        NearestOnly,
        FarthestOnly,
        ToMe,
        FastV,
        SparseVLM,
        HiRED,
        PruMerge,
        PruMergePlus,
        PyramidDrop,
        FiCoCoV,
        MustDrop,
        VisionZip,
        FasterVLM,
        GlobalCom2,
        DART,
        TokenCarve,
        TwigVLM,
        LookAhead,
        FinalWipe,
        DivPrune,
        CDPruner,
        SCOPE,
        Random,
        UniformGrid,
        Downsample,
    ]
)
"""Every method, by name, in the order in which they are listed to users."""
get_method = METHODS.get_method
from_json = METHODS.from_json
make_method = METHODS.make_method

__all__ = [
    "DART",
    "METHODS",
    "SCOPE",
    "BudgetedMethod",
    "CDPruner",
    "Card",
    "Choice",
    "DivPrune",
    "Downsample",
    "Encoded",
    "FarthestOnly",
    "FastV",
    "FasterVLM",
    "FiCoCoV",
    "FinalWipe",
    "GlobalCom2",
    "HiRED",
    "LookAhead",
    "Method",
    "MoB",
    "MustDrop",
    "NearestOnly",
    "PruMerge",
    "PruMergePlus",
    "PyramidDrop",
    "Random",
    "Registry",
    "SparseVLM",
    "Spec",
    "ToMe",
    "TokenCarve",
    "TowerChoice",
    "TowerView",
    "TwigVLM",
    "UniformGrid",
    "View",
    "VisionZip",
    "from_json",
    "get_method",
    "make_method",
    "name_method",
    "one_block",
    "parse_method",
    "parse_methods",
    "to_json",
]
