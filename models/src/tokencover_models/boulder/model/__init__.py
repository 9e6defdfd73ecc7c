"""What boulder is made of, and how it is put together."""

from tokencover_models.boulder.model.assembly import (
    DECODER,
    DOWN,
    UP,
    assemble,
    load_assembled,
    merge_low_rank,
)
from tokencover_models.boulder.model.base_model import (
    BaseModel,
    read_base_model,
    read_base_tokenizer,
)

__all__ = [
    "DECODER",
    "DOWN",
    "UP",
    "BaseModel",
    "assemble",
    "load_assembled",
    "merge_low_rank",
    "read_base_model",
    "read_base_tokenizer",
]
