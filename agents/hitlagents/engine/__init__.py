"""Takes queued runs and advances them: the loop, its threads, the queue, the sweeper."""
