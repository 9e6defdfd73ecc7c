"""The decoder: what its layers get when sequences were shortened.

| file | what it does |
|---|---|
| `layers` | masks and positions of layers for kept tokens; which methods a decoder supports |
| `masks` | masks of models with windows or bidirectional attention, cut to kept tokens |
| `cache` | caches whose layers differ in length |
"""
