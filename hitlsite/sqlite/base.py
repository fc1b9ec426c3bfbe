"""Django's SQLite, with the writers of this process waiting in line.

SQLite lets one writer in at a time and has no queue: who finds the database locked sleeps
and tries again, up to a tenth of a second later. A busy writer is back before that, and the
others starve until "database is locked". Here the writing transactions of this process (and
the writes outside of one) take turns, so SQLite's own waiting is left to other processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.sqlite3 import base
from django.db.utils import OperationalError

from hitlsite.sqlite.turns import Turns

_turns = Turns()
_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


class DatabaseWrapper(base.DatabaseWrapper):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._has_turn = False
        self.execute_wrappers.append(self._in_turn)

    def _patience(self) -> float:
        return float(self.settings_dict["OPTIONS"].get("timeout", 5))

    def _start_transaction_under_autocommit(self) -> None:
        if not _turns.take(self._patience()):
            raise OperationalError("database is locked (the line did not move)")
        self._has_turn = True
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]  # not in the stubs
        except BaseException:
            self._leave()
            raise

    # A commit that fails is followed by a rollback, and that by closing.

    def _commit(self) -> None:
        super()._commit()  # type: ignore[misc]  # not in the stubs
        self._leave()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]  # not in the stubs
        finally:
            self._leave()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]  # not in the stubs
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._has_turn:
            self._has_turn = False
            _turns.leave()

    def _in_turn(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: Any,
        many: bool,  # noqa: FBT001  (Django's signature)
        context: dict[str, Any],
    ) -> Any:
        """Let a write outside of any transaction wait in the same line."""
        if self._has_turn or not sql[:20].lstrip().upper().startswith(_WRITES):
            return execute(sql, params, many, context)
        try:
            with _turns.taken(self._patience()):
                return execute(sql, params, many, context)
        except TimeoutError as error:
            raise OperationalError(f"database is locked ({error})") from error
