"""Plain loops in portable C: every operator and type that C is for, in any strides."""
