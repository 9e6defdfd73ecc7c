"""How many tokens to keep, and how they are split between prompt and picture.

=======================  ========================================================================
how many                 `amount.py`: a count or a share, and what it counts (`budget_mode`);
                         what a decoder block costs
a split, a rule for it   `split.py`: `Split`, `SplitRule`
all rules                `split_rules.py`; by name `SPLITS`, words and JSON in `split_names.py`
the paper's tables       `split_rules.paper_split`
balance of the radii     `radius_balance.balance_prompt_budget`
the threshold tau        `threshold.py`; measured `profile.Profile`, in use `online.OnlineThreshold`
=======================  ========================================================================
"""

from tokencover.budget.amount import (
    Budget,
    BudgetMode,
    LayerCost,
    PublishedMode,
    block_cost,
    check_mode,
    is_innermost_linear,
    resolve_mode,
    round_half_up,
    tokens_left,
    tokens_to_keep,
)
from tokencover.budget.online import OnlineThreshold
from tokencover.budget.profile import Profile
from tokencover.budget.radius_balance import balance_prompt_budget, balance_prompt_budgets
from tokencover.budget.split import Coupling, Decision, Modality, Split, SplitRule, Tokens
from tokencover.budget.split_names import SPLITS, rule_document, rule_from_document, rule_of
from tokencover.budget.split_rules import (
    NO_PRIOR,
    BalancedSplit,
    CouplingSplit,
    FixedSplit,
    OnlineSplit,
    PaperSplit,
    paper_split,
)

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
    "balance_prompt_budgets",
    "block_cost",
    "check_mode",
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
