"""The queries of the store, as transaction scripts: one module per noun."""
