"""What an operator wants of its operands, by family. An operator without a role takes operands of one shape."""

# Each registers the roles of its operators.
from eqsat.check.roles import (  # noqa: F401
    elementwise,
    movement,
    normalizing,
    products,
    qlinear,
    quantizing,
    reductions,
    resampling,
    windows,
)
from eqsat.check.roles.registry import Role, role, role_of

__all__ = ["Role", "role", "role_of"]
