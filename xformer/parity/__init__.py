"""Where two backends part: every operation of a model on every backend in every precision, against NumPy.

`recording` writes down what each operation took and gave, `backends` runs a model somewhere, `figures` compares two
results, `report` puts them into tables, JSON and a plot. The program `xformer parity` is the face of it.
"""

from xformer.parity.comparing import Comparison, compare
from xformer.parity.places import Place, places

__all__ = ["Comparison", "Place", "compare", "places"]
