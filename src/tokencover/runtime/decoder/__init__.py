"""The decoder: what its blocks get when sequences were shortened, and what they cost."""

from tokencover.runtime.decoder.block_inputs import BlockInputs
from tokencover.runtime.decoder.decoder_cost import block_cost
from tokencover.runtime.decoder.renumbering import Renumbering

__all__ = ["BlockInputs", "Renumbering", "block_cost"]
