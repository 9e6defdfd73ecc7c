# Written by `make catalog` from the classes themselves; not to be edited.
# ruff: noqa

from tokencover.methods._shared.ranking import choose_best as choose_best
from tokencover.methods.base import ActsOnce as ActsOnce
from tokencover.methods.base import BeforeDecoder as BeforeDecoder
from tokencover.methods.base import BudgetedMethod as BudgetedMethod
from tokencover.methods.base import Card as Card
from tokencover.methods.base import Choice as Choice
from tokencover.methods.base import Details as Details
from tokencover.methods.base import LazyValue as LazyValue
from tokencover.methods.base import Method as Method
from tokencover.methods.base import Positions as Positions
from tokencover.methods.base import View as View
from tokencover.methods.base import VisionMerge as VisionMerge
from tokencover.methods.base import VisionOutputs as VisionOutputs
from tokencover.methods.base import VisionView as VisionView
from tokencover.methods.base import validate_layer_idx as validate_layer_idx
from tokencover.methods.cdpruner import CDPruner as CDPruner
from tokencover.methods.dart import DART as DART
from tokencover.methods.divprune import DivPrune as DivPrune
from tokencover.methods.downsample import Downsample as Downsample
from tokencover.methods.farthest_only import FarthestOnly as FarthestOnly
from tokencover.methods.fastervlm import FasterVLM as FasterVLM
from tokencover.methods.fastv import FastV as FastV
from tokencover.methods.ficoco import FiCoCoV as FiCoCoV
from tokencover.methods.final_wipe import FinalWipe as FinalWipe
from tokencover.methods.globalcom2 import GlobalCom2 as GlobalCom2
from tokencover.methods.hired import HiRED as HiRED
from tokencover.methods.look_ahead import LookAhead as LookAhead
from tokencover.methods.mob import MoB as MoB
from tokencover.methods.mob_stages import MoBStages as MoBStages
from tokencover.methods.mustdrop import MustDrop as MustDrop
from tokencover.methods.nearest_only import NearestOnly as NearestOnly
from tokencover.methods.prumerge import PruMerge as PruMerge
from tokencover.methods.prumerge import PruMergePlus as PruMergePlus
from tokencover.methods.pyramiddrop import PyramidDrop as PyramidDrop
from tokencover.methods.random_tokens import Random as Random
from tokencover.methods.registry import METHODS as METHODS
from tokencover.methods.registry import Spec as Spec
from tokencover.methods.registry import from_json as from_json
from tokencover.methods.registry import get_method as get_method
from tokencover.methods.registry import list_settings as list_settings
from tokencover.methods.registry import make_method as make_method
from tokencover.methods.registry import name_method as name_method
from tokencover.methods.registry import parse_method as parse_method
from tokencover.methods.registry import parse_methods as parse_methods
from tokencover.methods.registry import register_method as register_method
from tokencover.methods.registry import to_json as to_json
from tokencover.methods.scope import SCOPE as SCOPE
from tokencover.methods.sparsevlm import SparseVLM as SparseVLM
from tokencover.methods.tokencarve import TokenCarve as TokenCarve
from tokencover.methods.tome import ToMe as ToMe
from tokencover.methods.twigvlm import TwigVLM as TwigVLM
from tokencover.methods.uniform_grid import UniformGrid as UniformGrid
from tokencover.methods.visionzip import VisionZip as VisionZip

__all__: list[str]
