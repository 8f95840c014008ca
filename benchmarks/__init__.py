"""What eqsat is measured with: each program prints a table and writes JSON."""
