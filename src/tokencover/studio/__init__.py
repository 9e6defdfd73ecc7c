"""The studio: a web page to try pruning on. It needs Gradio, the extra ``tokencover[studio]``."""

from tokencover.studio.opening import StudioSettings, open_studio

__all__ = ["StudioSettings", "open_studio"]
