"""Parts of a run: chain, context, session, tools, recall, compaction, limits and decisions."""
