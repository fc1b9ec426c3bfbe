"""A checkpoint saver of our own: what LangGraph saves becomes part of the run's state.

It keeps checkpoints in memory while a run advances. At the end the host stores what is
left of them together with the requests and the run's status, in one transaction that
checks the worker's attempt: an attempt that fails, or whose run was taken away, leaves the
last state as it was. Values are msgpack of plain data and of the framework's own messages;
what would have to be imported or called is neither written nor read.

Imports the framework, so import this module late.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

type Typed = tuple[str, bytes]

#: How values may be written; never as pickle, never as JSON that names constructors.
KINDS = frozenset({"null", "bytes", "bytearray", "msgpack"})


class Unreadable(Exception):
    """A stored value that is damaged, or of a type nobody vouched for."""


class Unwritable(Exception):
    """A value that is not plain data, in words."""


@dataclass(kw_only=True)
class _Write:
    task_id: str
    task_path: str
    channel: str
    value: Typed


@dataclass(kw_only=True)
class _Saved:
    checkpoint: Typed
    metadata: Typed
    parent: str = ""
    writes: dict[tuple[str, int], _Write] = field(default_factory=dict)


class StateSaver(BaseCheckpointSaver[int]):
    """Checkpoints of one thread, whatever thread id a caller names."""

    def __init__(self) -> None:
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        #: By namespace and checkpoint id. Ids sort in the order of time.
        self._saved: dict[str, dict[str, _Saved]] = {}

    # As LangGraph wants it

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        namespace = _namespace(config)
        saved = self._saved.get(namespace, {})
        checkpoint_id = get_checkpoint_id(config) or max(saved, default="")
        if checkpoint_id not in saved:
            return None
        return self._tuple(config, namespace, checkpoint_id, saved[checkpoint_id])

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        config = config or {"configurable": {}}
        namespace = _namespace(config)
        latest = get_checkpoint_id(before) if before else None
        found = 0
        for checkpoint_id in sorted(self._saved.get(namespace, {}), reverse=True):
            if latest is not None and checkpoint_id >= latest:
                continue
            saved = self._saved[namespace][checkpoint_id]
            each = self._tuple(config, namespace, checkpoint_id, saved)
            wanted = (filter or {}).items()
            if any(each.metadata.get(key) != value for key, value in wanted):
                continue
            if limit is not None and found >= limit:
                return
            found += 1
            yield each

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        namespace = _namespace(config)
        self._saved.setdefault(namespace, {})[checkpoint["id"]] = _Saved(
            checkpoint=self._dumped(checkpoint),
            metadata=self._dumped(get_checkpoint_metadata(config, metadata)),
            parent=get_checkpoint_id(config) or "",
        )
        return _addressed(config, namespace, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Values for the framework's own channels replace earlier ones, others stay."""
        checkpoint_id = get_checkpoint_id(config) or ""
        kept = self._saved[_namespace(config)][checkpoint_id].writes
        for index, (channel, value) in enumerate(writes):
            key = task_id, WRITES_IDX_MAP.get(channel, index)
            if key[1] < 0 or key not in kept:
                kept[key] = _Write(
                    task_id=task_id,
                    task_path=task_path,
                    channel=channel,
                    value=self._dumped(value),
                )

    def delete_thread(self, thread_id: str) -> None:
        self._saved.clear()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for each in self.list(config, filter=filter, before=before, limit=limit):
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    # As the state of a run

    def dump(self, tasks: Sequence[str]) -> dict[str, Any]:
        """The latest checkpoint of each namespace that is still needed, as plain JSON.

        ``tasks``: ids of the root's unfinished tasks. A subgraph's namespace begins with
        its task and ends with it, unless it names none: that is memory of its own.
        """
        return {
            namespace: self._dump_latest(saved)
            for namespace, saved in self._saved.items()
            if saved and _is_needed(namespace, tasks)
        }

    @staticmethod
    def _dump_latest(saved: dict[str, _Saved]) -> dict[str, Any]:
        checkpoint_id = max(saved)
        latest = saved[checkpoint_id]
        return {
            "id": checkpoint_id,
            "checkpoint": _encoded(latest.checkpoint),
            "metadata": _encoded(latest.metadata),
            "writes": [
                [
                    write.task_id,
                    index,
                    write.task_path,
                    write.channel,
                    *_encoded(write.value),
                ]
                for (_, index), write in latest.writes.items()
            ],
        }

    @classmethod
    def load(cls, state: dict[str, Any]) -> StateSaver:
        """The saver that ``dump`` came from. Raises Unreadable."""
        saver = cls()
        try:
            for namespace, latest in state.items():
                saver._saved[namespace] = {str(latest["id"]): _load_latest(latest)}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unreadable("not a saver's content") from error
        return saver

    # Values

    def _dumped(self, value: Any) -> Typed:
        """Raises Unwritable."""
        try:
            return self.serde.dumps_typed(value)
        except (TypeError, ValueError) as error:
            # Of the encoder's own, and short: "Integer exceeds 64-bit range".
            raise Unwritable(str(error)) from error

    def _loaded(self, value: Typed) -> Any:
        """Raises Unreadable, also for a type that the framework would quietly drop."""
        if value[0] not in KINDS:
            raise Unreadable(f"a value written as {value[0]}")
        with _blocked() as blocked:
            try:
                loaded = self.serde.loads_typed(value)
            except Exception as error:  # decoders raise what they like
                raise Unreadable(type(error).__name__) from error
        if blocked:
            raise Unreadable(blocked[0])
        return loaded

    def _tuple(
        self,
        config: RunnableConfig,
        namespace: str,
        checkpoint_id: str,
        saved: _Saved,
    ) -> CheckpointTuple:
        writes = sorted(
            saved.writes.items(),
            key=lambda item: writes_sort_key(item[1].task_path, *item[0]),
        )
        checkpoint = self._loaded(saved.checkpoint)
        if not isinstance(checkpoint, dict) or checkpoint.get("id") != checkpoint_id:
            raise Unreadable("not a checkpoint")
        return CheckpointTuple(
            config=_addressed(config, namespace, checkpoint_id),
            checkpoint=cast("Checkpoint", checkpoint),
            metadata=self._loaded(saved.metadata),
            parent_config=(
                _addressed(config, namespace, saved.parent) if saved.parent else None
            ),
            pending_writes=[
                (write.task_id, write.channel, self._loaded(write.value))
                for _, write in writes
            ],
        )


def _namespace(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns", ""))


def _addressed(
    config: RunnableConfig, namespace: str, checkpoint_id: str
) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": config["configurable"].get("thread_id", ""),
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


def _is_needed(namespace: str, tasks: Sequence[str]) -> bool:
    """``node:task`` per level, joined by ``|``; without a task for lasting memory."""
    task = namespace.partition("|")[0].partition(":")[2]
    return not task or task in tasks


def _encoded(value: Typed) -> list[str]:
    return [value[0], base64.b64encode(value[1]).decode("ascii")]


def _decoded(kind: Any, text: Any) -> Typed:
    if not isinstance(kind, str) or not isinstance(text, str):
        raise TypeError(kind)
    return kind, base64.b64decode(text, validate=True)


def _load_latest(latest: dict[str, Any]) -> _Saved:
    writes = {}
    for task_id, index, task_path, channel, kind, text in latest["writes"]:
        if not isinstance(index, int):
            raise TypeError(index)
        writes[str(task_id), index] = _Write(
            task_id=str(task_id),
            task_path=str(task_path),
            channel=str(channel),
            value=_decoded(kind, text),
        )
    return _Saved(
        checkpoint=_decoded(*latest["checkpoint"]),
        metadata=_decoded(*latest["metadata"]),
        writes=writes,
    )


_reading = Lock()


@contextmanager
def _blocked() -> Iterator[list[str]]:
    """Gathers the types that the framework refuses to make while a value is read.

    It says so only to listeners that are global to the process, so one reader at a time.
    """
    names: list[str] = []
    with _reading:
        stop = register_serde_event_listener(
            lambda event: names.append(f"{event['module']}.{event['name']}")
        )
        try:
            yield names
        finally:
            stop()
