"""Pebble for short clips: eight frames, questions about what happens when, a Video-LLaVA."""
