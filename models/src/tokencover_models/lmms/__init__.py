"""Tasks for lmms-eval: pebble's questions about images and videos."""
