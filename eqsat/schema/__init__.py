"""What an operator is by its standard: types, schemas, attributes, and the functions that eqsat adds."""
