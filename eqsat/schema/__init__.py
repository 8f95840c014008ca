"""The standard's specification of operators: types, schemas, attributes, and the functions that eqsat adds."""
