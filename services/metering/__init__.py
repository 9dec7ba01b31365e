"""The accounting plane: usage ledger, prices, quotas and budgets."""
