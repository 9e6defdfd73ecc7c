"""Keys and a few rows of attention of decoder layers, without attention maps.

`reader` answers methods and records watched layers; `layer_attention` computes queries, keys and
weights of one layer.
"""
