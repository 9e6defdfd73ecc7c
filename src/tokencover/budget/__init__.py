"""How many tokens to keep, and how they are split between prompt and picture."""

from tokencover.budget.amount import Budget, tokens_to_keep
from tokencover.budget.cost import BlockCost
from tokencover.budget.modes import BudgetMode, check_mode, tokens_left
from tokencover.budget.online import OnlineThreshold
from tokencover.budget.profile import Profile
from tokencover.budget.rules import BalancedSplit, CouplingSplit, OnlineSplit, SplitRule
from tokencover.budget.split import Split
from tokencover.budget.tables import Coupling, Modality, paper_split

__all__ = [
    "BalancedSplit",
    "BlockCost",
    "Budget",
    "BudgetMode",
    "Coupling",
    "CouplingSplit",
    "Modality",
    "OnlineSplit",
    "OnlineThreshold",
    "Profile",
    "Split",
    "SplitRule",
    "check_mode",
    "paper_split",
    "tokens_left",
    "tokens_to_keep",
]
