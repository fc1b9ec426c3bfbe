"""Says at the end which tests did not run and why; in CI that is a failure."""

from __future__ import annotations

import os
from collections import Counter

import pytest

REQUIRE_ALL = "SAYSO_REQUIRE_ALL"


def all_required() -> bool:
    return os.environ.get(REQUIRE_ALL, "") not in {"", "0"}


class LeftOut:
    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure is reported as skipped too, but it did run.
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._note(report.longrepr)

    def _note(self, longrepr: object) -> None:
        reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
        self.reasons[str(reason).removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.reasons and all_required() and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        if not self.reasons:
            return
        terminalreporter.section("left out")
        for reason, count in sorted(self.reasons.items()):
            tests = "1 test" if count == 1 else f"{count} tests"
            terminalreporter.write_line(f"{tests}: {reason}")
        if all_required():
            terminalreporter.write_line(
                f"{REQUIRE_ALL} is set, so this run has failed.", red=True
            )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LeftOut(), "sayso-left-out")
