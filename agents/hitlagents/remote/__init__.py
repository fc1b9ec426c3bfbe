"""Agents that run elsewhere and speak AG-UI: the client side of the protocol.

The remote runs its tools itself. What is held here is its interrupt: the answer leaves
once, after the ledger has it, and what became of it is on record.
"""
