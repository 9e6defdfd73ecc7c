# Written by `make catalog` from the classes themselves; not to be edited.
# ruff: noqa

from tokencover.budget import BalancedSplit as BalancedSplit
from tokencover.budget import CouplingSplit as CouplingSplit
from tokencover.budget import OnlineSplit as OnlineSplit
from tokencover.budget import Split as Split
from tokencover.budget import paper_split as paper_split
from tokencover.catalog import register as register
from tokencover.covering import Cover as Cover
from tokencover.covering import coupling as coupling
from tokencover.covering import farthest_points as farthest_points
from tokencover.covering import mob as mob
from tokencover.covering import nearest_points as nearest_points
from tokencover.errors import InputError as InputError
from tokencover.errors import TokenCoverError as TokenCoverError
from tokencover.evaluation import Results as Results
from tokencover.evaluation import evaluate as evaluate
from tokencover.loading import load as load
from tokencover.methods import BudgetedMethod as BudgetedMethod
from tokencover.methods import CDPruner as CDPruner
from tokencover.methods import Choice as Choice
from tokencover.methods import DART as DART
from tokencover.methods import DivPrune as DivPrune
from tokencover.methods import Downsample as Downsample
from tokencover.methods import FarthestOnly as FarthestOnly
from tokencover.methods import FastV as FastV
from tokencover.methods import FasterVLM as FasterVLM
from tokencover.methods import FiCoCoV as FiCoCoV
from tokencover.methods import FinalWipe as FinalWipe
from tokencover.methods import GlobalCom2 as GlobalCom2
from tokencover.methods import HiRED as HiRED
from tokencover.methods import LookAhead as LookAhead
from tokencover.methods import METHODS as METHODS
from tokencover.methods import Method as Method
from tokencover.methods import MoB as MoB
from tokencover.methods import MoBStages as MoBStages
from tokencover.methods import MustDrop as MustDrop
from tokencover.methods import NearestOnly as NearestOnly
from tokencover.methods import PruMerge as PruMerge
from tokencover.methods import PruMergePlus as PruMergePlus
from tokencover.methods import PyramidDrop as PyramidDrop
from tokencover.methods import Random as Random
from tokencover.methods import SCOPE as SCOPE
from tokencover.methods import SparseVLM as SparseVLM
from tokencover.methods import ToMe as ToMe
from tokencover.methods import TokenCarve as TokenCarve
from tokencover.methods import TwigVLM as TwigVLM
from tokencover.methods import UniformGrid as UniformGrid
from tokencover.methods import View as View
from tokencover.methods import VisionZip as VisionZip
from tokencover.methods import from_json as from_json
from tokencover.methods import get_method as get_method
from tokencover.methods import to_json as to_json
from tokencover.prompting import make_inputs as make_inputs
from tokencover.pruning import prune as prune
from tokencover.theory import Certificate as Certificate
from tokencover.theory import certify as certify
from tokencover_models import load_boulder as load_boulder
from tokencover_models import load_pebble as load_pebble
from tokencover_models import load_pebble_clips as load_pebble_clips

__version__: str
__all__: list[str]
