"""Twigs: a few trained blocks on an early block of a decoder, which look ahead for TwigVLM."""

from tokencover.twig.twig_files import SHIPPED_TWIGS, load_twig, save_twig
from tokencover.twig.twig_module import Twig, TwigPlan, grow
from tokencover.twig.twig_training import TrainingSettings, train

__all__ = [
    "SHIPPED_TWIGS",
    "TrainingSettings",
    "Twig",
    "TwigPlan",
    "grow",
    "load_twig",
    "save_twig",
    "train",
]
