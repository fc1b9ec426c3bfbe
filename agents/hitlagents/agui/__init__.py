"""The AG-UI endpoint: pages of others talk to hosted agents and decide what they ask.

What a page sends is a wish. The conversation is what the database has of it, and an
answer to an interrupt is a decision by the caller's own rights, or none. The views are
synchronous: they check, decide and send; what follows a run afterwards is an
asynchronous stream on the web loop, which holds no thread while it waits.
"""
