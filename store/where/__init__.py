"""RocketMQ's own filter language: `Where(text)`, asked of messages and of batches."""

from .where import Where

__all__ = ["Where"]
