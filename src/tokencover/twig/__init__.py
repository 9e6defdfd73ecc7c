"""Twigs: a few trained blocks on an early block of a decoder, which look ahead for TwigVLM."""

from tokencover.twig.files import SHIPPED, load_twig, save_twig
from tokencover.twig.module import Twig, TwigPlan, grow
from tokencover.twig.training import TrainingSettings, train

__all__ = [
    "SHIPPED",
    "TrainingSettings",
    "Twig",
    "TwigPlan",
    "grow",
    "load_twig",
    "save_twig",
    "train",
]
