"""Keys and a few rows of attention of decoder layers, without attention maps.

| file | what it does |
|---|---|
| `reader` | answers `View.keys`, `View.attention` and `View.ahead` |
| `layer_attention` | queries, keys and attention weights of one decoder layer |
| `recorder` | records queries and keys of watched layers while they run |
"""
