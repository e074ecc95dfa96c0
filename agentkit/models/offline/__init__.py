"""Models that need no network: the stand-in and the scripted one."""
