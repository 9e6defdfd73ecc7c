"""The fast search on an accelerator: a batch shares each kernel, and the host hardly waits.

=============================  =====================================================================
`Directions`                   tokens of a batch, with float32 cosines of proven error
`rank_prompt_centers`          step 1 of Algorithm 1
`choose_farthest_together`     step 2, with a proof of its steps
`choose_farthest_exactly`      step 2 for a sample in which tokens are too much alike for estimates
`measure_hausdorff`            Algorithm 2
=============================  =====================================================================

The functions leave their results, and whether these are proven, on the device. A caller reads the
latter once for a whole batch.
"""

from tokencover.covering.together.directions import Directions, keep_float32, read_together
from tokencover.covering.together.hausdorff_pairs import measure_all_pairs, measure_hausdorff
from tokencover.covering.together.one_by_one import choose_farthest_exactly
from tokencover.covering.together.prompt_centers import rank_prompt_centers
from tokencover.covering.together.visual_centers import choose_farthest_together

__all__ = [
    "Directions",
    "choose_farthest_exactly",
    "choose_farthest_together",
    "keep_float32",
    "measure_all_pairs",
    "measure_hausdorff",
    "rank_prompt_centers",
    "read_together",
]
