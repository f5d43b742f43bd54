"""The file formats of the field, one module for each family; `readers` and `writers` are their front."""
