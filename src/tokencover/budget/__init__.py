"""How many tokens to keep, and how they are split between prompt and picture."""

from tokencover.budget.amount import Budget, nearest, tokens_to_keep
from tokencover.budget.block_cost import BlockCost
from tokencover.budget.modes import BudgetMode, check_mode, tokens_left
from tokencover.budget.online import OnlineThreshold
from tokencover.budget.profile import Profile
from tokencover.budget.published_splits import NO_PRIOR, Coupling, Modality, paper_split
from tokencover.budget.radius_balance import balance_prompt_budget, balance_prompt_budgets
from tokencover.budget.split import Split
from tokencover.budget.split_rules import (
    BalancedSplit,
    CouplingSplit,
    Decision,
    FixedSplit,
    OnlineSplit,
    SplitRule,
    Tokens,
    rule_document,
    rule_from_document,
    rule_of,
)

__all__ = [
    "NO_PRIOR",
    "BalancedSplit",
    "BlockCost",
    "Budget",
    "BudgetMode",
    "Coupling",
    "CouplingSplit",
    "Decision",
    "FixedSplit",
    "Modality",
    "OnlineSplit",
    "OnlineThreshold",
    "Profile",
    "Split",
    "SplitRule",
    "Tokens",
    "balance_prompt_budget",
    "balance_prompt_budgets",
    "check_mode",
    "nearest",
    "paper_split",
    "rule_document",
    "rule_from_document",
    "rule_of",
    "tokens_left",
    "tokens_to_keep",
]
