"""Regions of the target ``dnnl`` as primitives of oneDNN, formerly DNNL and MKL-DNN.

Each kernel of a region (a composite or a plain operator) becomes operations of oneDNN: a primitive with its chain of
post-operations where the library has one for all of it. The generated program holds the operations as tables, and makes
primitives of them when it is initialized; see ``templates/tables.c.jinja``.
"""

from eqsat.backends.onednn.backend import OneDnn

BACKEND = OneDnn()
