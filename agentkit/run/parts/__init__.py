"""What a run is made of: chain, context, session, tools, recall, compaction, limits, decisions."""
