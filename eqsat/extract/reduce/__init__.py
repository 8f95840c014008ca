"""Making a problem smaller before it is solved, and what every program must contain."""
