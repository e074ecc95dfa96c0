from agentkit.run.engine.events import MessageReceived as MessageReceived
from agentkit.run.engine.run_stream import RunStream as RunStream
from agentkit.run.engine.run_stream import SyncRunStream as SyncRunStream
from agentkit.run.parts.run_inbox import Inbox as Inbox
from agentkit.run.parts.run_inbox import SentMessage as SentMessage
