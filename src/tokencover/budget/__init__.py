"""How many tokens to keep, and how they are split between prompt and picture."""

from tokencover.budget.amount import Budget, tokens_to_keep
from tokencover.budget.split import Split
from tokencover.budget.tables import Coupling, Modality, paper_split

__all__ = ["Budget", "Coupling", "Modality", "Split", "paper_split", "tokens_to_keep"]
