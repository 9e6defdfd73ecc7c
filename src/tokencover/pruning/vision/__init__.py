"""The vision encoder: how it was called, what it computed, merging tokens in it.

| file | what it does |
|---|---|
| `encoder_calls` | records the arguments of encoder calls; locates visual tokens in their images |
| `encoder_memory` | caches image features |
| `encoder` | vision encoders of known types; maps their tokens to visual tokens |
| `vision_attention` | queries and keys of a block; which tokens attend to each other |
| `encoder_reader` | records features, queries and keys for methods that read them |
| `merger`, `merged_row` | merges tokens between blocks (ToMe, FiCoCo-V) |
"""
