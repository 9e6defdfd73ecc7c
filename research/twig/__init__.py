"""Training of twigs for TwigVLM: see docs/research/twig.md."""
