"""What templates may do with values: read, filter, test, call and combine them, each bounded, and what each costs."""
