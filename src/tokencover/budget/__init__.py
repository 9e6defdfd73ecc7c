"""How many tokens to keep, and how they are split between prompt and image.

====================  ===========================================================================
how many              `amount.py`: a count or a fraction, what it counts (`budget_mode`), and what
                      a decoder layer costs
splits, rules         `split.py`; the paper's tables are `split.paper_split`
rules by name, JSON   `split_names.py`
balance of the radii  `split.balance_prompt_budget`
the threshold tau     `threshold.py`; measured `profile.Profile`, while serving `online.py`
====================  ===========================================================================
"""

from tokencover.budget.amount import (
    Budget,
    BudgetMode,
    LayerCost,
    PublishedMode,
    block_cost,
    is_innermost_linear,
    resolve_mode,
    round_half_up,
    tokens_left,
    tokens_to_keep,
)
from tokencover.budget.online import OnlineThreshold
from tokencover.budget.profile import Profile
from tokencover.budget.split import (
    NO_PRIOR,
    BalancedSplit,
    Coupling,
    CouplingSplit,
    Decision,
    FixedSplit,
    Modality,
    OnlineSplit,
    PaperSplit,
    Split,
    SplitRule,
    Tokens,
    balance_prompt_budget,
    paper_split,
)
from tokencover.budget.split_names import SPLITS, rule_document, rule_from_document, rule_of

__all__ = [
    "NO_PRIOR",
    "SPLITS",
    "BalancedSplit",
    "Budget",
    "BudgetMode",
    "Coupling",
    "CouplingSplit",
    "Decision",
    "FixedSplit",
    "LayerCost",
    "Modality",
    "OnlineSplit",
    "OnlineThreshold",
    "PaperSplit",
    "Profile",
    "PublishedMode",
    "Split",
    "SplitRule",
    "Tokens",
    "balance_prompt_budget",
    "block_cost",
    "is_innermost_linear",
    "paper_split",
    "resolve_mode",
    "round_half_up",
    "rule_document",
    "rule_from_document",
    "rule_of",
    "tokens_left",
    "tokens_to_keep",
]
