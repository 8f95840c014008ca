"""Plain loops in portable C: every operator and type that C supports, in any strides."""
