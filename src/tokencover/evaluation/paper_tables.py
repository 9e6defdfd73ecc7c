"""The numbers that the MoB paper prints, to compare one's own with.

They are those of its Tables 5 (which contains Table 1), 2 and 3: scores by benchmark, "-" where
there is none, and the "Avg." that is printed last. `mob` is MoB without, `mob+prior` with the
paper's prior on coupling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokencover.evaluation.metrics import average_relative

VANILLA: Final = "vanilla"
STRONG_COUPLING: Final = ("MMB", "MMB-CN", "SQA", "VizWiz")
WEAK_COUPLING: Final = ("GQA", "MME", "POPE", "TextVQA", "VQAv2", "OCR")
IMAGE_BENCHMARKS: Final = (*STRONG_COUPLING, *WEAK_COUPLING)
QWEN_BENCHMARKS: Final = ("GQA", "MME", "POPE", "TextVQA", "MMB", "SQA")
VIDEO_BENCHMARKS: Final = ("TGIF", "MSVD", "MSRVTT", "ActivityNet")


@dataclass(frozen=True)
class PaperRow:
    """One row of a table.

    Attributes
    ----------
    table : int
        Number of the table.
    model : str
        As the paper calls it.
    reduction : float
        Share of visual tokens that is dropped, in percent.
    method : str
        "vanilla", or a name of `METHODS`; "mob+prior" is MoB with the paper's prior.
    scores : dict
        By benchmark, those that are printed.
    printed_average : float
        The cell "Avg.", in percent.
    """

    table: int
    model: str
    reduction: float
    method: str
    scores: dict[str, float]
    printed_average: float


def find_row(model: str, reduction: float, method: str) -> PaperRow:
    """The row of a method; raises `KeyError` if the paper has none."""
    return _BY_NAME[model, reduction, method]


def average_row(row: PaperRow) -> float:
    """The row's "Avg.", computed from its scores and those of its model without pruning."""
    return average_relative(row.scores, find_row(row.model, 0.0, VANILLA).scores)


def _read_rows(table: int, benchmarks: tuple[str, ...], text: str) -> list[PaperRow]:
    rows = []
    model, reduction = "", 0.0
    for line in text.strip().splitlines():
        if line.startswith("["):
            model, _, rate = line.strip("[]").partition(", ")
            reduction = float(rate)
            continue
        method, *cells, printed = line.split()
        pairs = zip(benchmarks, cells, strict=True)
        scores = {name: float(cell) for name, cell in pairs if cell != "-"}
        rows.append(PaperRow(table, model, reduction, method, scores, float(printed)))
    return rows


_TABLE_5: Final = """
[LLaVA-1.5-7B, 0.0]
vanilla      64.7  58.1  69.5  50.0  61.9  1862  85.9  58.2  78.5   297   100
[LLaVA-1.5-7B, 66.7]
tome         60.5     -  65.2     -  54.3  1563  72.4  52.1  68.0     -  88.5
fastv        61.2  57.0  67.3  50.8  52.7  1612  64.8  52.5  67.1   291  91.2
hired        62.8  54.7  68.4  50.1  58.7  1737  82.8  47.4  74.9   190  91.5
prumerge     59.6  52.9  67.9  50.1  54.3  1632  71.3  54.3  70.6   253  90.8
sparsevlm    62.5  53.7  69.1  50.5  57.6  1721  83.6  56.1  75.6   292  96.3
pyramiddrop  63.3  56.8  68.8  51.1  57.1  1797  82.3  56.1  75.1   290  96.7
ficoco_v     62.3  55.3  67.8  51.0  58.5  1732  82.5  55.7  74.4     -  96.1
mustdrop     62.3  55.8  69.2  51.4  58.2  1787  82.6  56.5  76.0   289  97.2
visionzip    63.0     -  68.9     -  59.3  1783  85.3  57.3  76.8     -  97.7
dart         63.6  57.0  69.8  51.2  60.0  1856  82.8  57.4  76.7   296  98.8
tokencarve   63.0     -  69.1  50.9     -  1830  84.9  58.4  78.0     -  99.3
twigvlm      64.0     -  68.8     -  61.2  1848  87.2  58.0  78.1     -  99.5
mob          63.8  57.5  70.0  52.4  61.2  1858  84.5  58.2  77.9   304 100.2
mob+prior    64.1  57.8  70.1  52.5  61.4  1860  84.8  58.5  78.3   307 100.6
[LLaVA-1.5-7B, 77.8]
tome         53.3     -  59.6     -  52.4  1343  62.8  49.1  63.0     -  80.4
fastv        56.1  56.4  60.2  51.3  49.6  1490  59.6  50.6  61.8   285  86.4
hired        61.5  53.6  68.1  51.3  57.2  1710  79.8  46.1  73.4   191  90.2
prumerge     58.1  51.7  67.1  50.3  53.3  1554  67.2  54.3  68.8   248  88.8
sparsevlm    60.0  51.1  67.1  51.4  56.0  1696  80.5  54.9  73.8   280  93.8
pyramiddrop  61.6  56.6  68.3  51.0  56.0  1761  82.3  55.1  72.9   287  95.1
ficoco_v     61.1  54.3  68.3  49.4  57.6  1711  82.2  55.6  73.1     -  94.9
mustdrop     61.1  55.2  68.5  52.1  56.9  1745  78.7  56.3  74.6   281  95.6
visionzip    62.0     -  68.9     -  57.6  1762  83.2  56.8  75.6     -  96.2
dart         63.2  57.5  69.1  51.7  58.7  1840  80.1  56.4  75.9   296  98.0
tokencarve   62.7     -  68.9  51.0     -  1829  84.5  58.1  77.3     -  99.0
twigvlm      63.5     -  69.5     -  60.6  1818  86.6  57.8  77.9     -  99.0
mob          63.2  57.3  69.3  52.8  60.7  1842  81.7  57.5  77.2   299  99.2
mob+prior    63.5  57.5  69.6  52.7  60.9  1845  82.1  57.8  77.5   299  99.4
[LLaVA-1.5-7B, 88.9]
tome         43.7     -  50.0     -  48.6  1138  52.5  45.3  57.1     -  70.1
fastv        48.0  52.7  51.1  50.8  46.1  1256  48.0  47.8  55.0   245  77.3
hired        60.2  51.4  68.2  50.2  54.6  1599  73.6  44.2  69.7   191  87.0
prumerge     55.3  49.1  68.1  50.1  51.9  1549  65.3  54.0  67.4   250  87.4
sparsevlm    56.2  46.1  62.2  50.1  52.7  1505  75.1  51.8  68.2   180  84.6
pyramiddrop  58.8  50.5  68.6  50.7  41.9  1561  55.9  45.9  69.2   250  78.1
ficoco_v     60.3  53.0  68.1  49.8  52.4  1591  76.0  53.6  71.3     -  91.5
mustdrop     60.0  53.1  63.4  51.2  53.1  1612  68.0  54.2  69.3   267  90.1
visionzip    60.1     -  69.0     -  55.1  1690  77.0  55.5  72.4     -  92.8
dart         60.6  53.2  69.8  51.6  55.9  1765  73.9  54.4  72.4   270  93.7
tokencarve   62.0     -  69.7  51.4     -  1754  79.9  57.0  74.8     -  97.0
twigvlm      60.4     -  70.0     -  58.8  1760  82.7  55.8  75.6     -  96.1
mob          61.7  54.2  69.7  52.0  59.0  1806  77.2  57.0  75.5   277  96.3
mob+prior    62.1  54.5  69.8  52.1  59.0  1806  77.2  57.0  75.5   277  96.4
[LLaVA-Next-7B, 0.0]
vanilla      67.4  60.6  70.1  57.6  64.2  1851  86.5  64.9  81.8   517   100
[LLaVA-Next-7B, 88.9]
fastv        61.6  51.9  62.8  53.1  55.9  1661  71.7  55.7  71.9   374  86.4
hired        64.2  55.9  66.7  54.2  59.3  1690  83.3  58.8  75.7   404  91.8
prumerge     61.3  55.3  66.4  54.0  53.6  1534  60.8  50.6  69.7   146  79.9
sparsevlm    60.6  54.5  66.1  52.0  56.1  1533  82.4  58.4  71.5   270  85.9
pyramiddrop  63.4  56.2  67.5  54.1  56.4  1663  77.6  54.4  73.5   259  86.8
mustdrop     62.8  55.1  68.0  54.0  57.3  1641  82.1  59.9  73.7   382  90.4
visionzip    63.1     -  67.3     -  59.3  1702     -  58.9  76.2     -  93.0
fastervlm    61.6  53.5  66.5  52.6  56.9  1701  83.6  56.5  74.0   401  89.8
globalcom2   61.8  53.4  67.4  54.6  57.1  1698  83.8  57.2  76.7   375  90.3
dart         65.3  58.2  68.4  56.1  61.7  1710  84.1  58.7  79.1   406  93.9
twigvlm      65.0     -  68.7     -  62.2  1758     -  57.4  79.7     -  95.4
mob+prior    65.8  58.9  68.7  57.0  62.6  1760  84.4  60.2  80.1   418  95.4
"""

_TABLE_2: Final = """
[Qwen2-VL-7B, 0.0]
vanilla      62.2  2317  86.1  82.1  80.5  84.7   100
[Qwen2-VL-7B, 66.7]
fastv        58.0  2130  82.1  77.3  76.1  80.0  94.0
dart         60.2  2245  83.9  80.5  78.9  81.4  97.0
mob+prior    61.8  2268  84.7  81.1  79.5  82.3  98.4
[Qwen2-VL-7B, 77.8]
fastv        56.7  2031  79.2  72.0  74.1  78.3  91.0
dart         58.5  2175  82.1  75.3  77.3  79.6  94.3
mob+prior    59.4  2203  82.8  75.8  78.1  80.4  95.2
[Qwen2-VL-7B, 88.9]
fastv        51.9  1962  76.1  60.3  70.1  75.8  84.4
dart         55.5  2052  77.9  61.8  72.0  77.6  87.4
mob+prior    56.5  2094  78.5  62.7  72.8  78.4  88.6
"""

_TABLE_3: Final = """
[Video-LLaVA-7B, 0.0]
vanilla      47.1  69.8  56.7  43.1   100
[Video-LLaVA-7B, 93.4]
fastv        23.1  38.0  19.3  30.6  52.1
sparsevlm    44.7  68.2  31.0  42.6  86.5
visionzip    42.4  63.5  52.1  43.0  93.2
twigvlm      44.7  68.3  54.6  41.5  96.3
mob+prior    45.3  68.8  55.2  42.8  97.9
"""

PAPER_ROWS: Final = (
    *_read_rows(5, IMAGE_BENCHMARKS, _TABLE_5),
    *_read_rows(2, QWEN_BENCHMARKS, _TABLE_2),
    *_read_rows(3, VIDEO_BENCHMARKS, _TABLE_3),
)
_BY_NAME: Final = {(row.model, row.reduction, row.method): row for row in PAPER_ROWS}
