"""What the standard specifies of operators: types, schemas, attributes, and the functions that eqsat adds."""
