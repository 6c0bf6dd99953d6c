"""What the store can do, as transaction scripts: one module per noun."""
