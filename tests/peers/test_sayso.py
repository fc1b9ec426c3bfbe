"""M21: another Sayso behind the desk. What it hosts is asked for here and may be decided there.

The other one is a process of its own with its own database, of which a test reads what
really ran.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import httpx
import pytest

from approvals.models import ToolExecution
from approvals.states import ExecutionStatus, RunStatus, Verdict
from hitlagents import events
from hitlagents.demo.people import DEMO_PASSWORD
from hitlagents.remote.profiles import Profile
from tests.hitlagents.driving import decide, results, yes
from tests.peers.conftest import PATIENCE, no
from tests.served import Served

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

DELTA = "TEXT_MESSAGE_CONTENT"

#: Lets whoever talks to the agent file-ops decide; with its other agents it stays a no.
SET_UP = """
from approvals.models import Policy
Policy.objects.filter(agent_pattern="file-ops").update(requester_may_decide=True)
"""


class OtherSayso(Served):
    """A demo of the product elsewhere, with the token of its operations reviewer."""

    token = ""

    def address(self, agent: str) -> str:
        return f"{self.url}/agui/{agent}/"

    def decide(self, interrupt: str, verdict: str, note: str = "") -> None:
        """Have its administrator decide in its inbox."""
        headers = {"Origin": self.url}
        with httpx.Client(
            base_url=self.url, headers=headers, timeout=PATIENCE
        ) as client:

            def post(path: str, **fields: str) -> httpx.Response:
                fields["csrfmiddlewaretoken"] = client.cookies["sayso_csrf"]
                return client.post(path, data=fields)

            client.get("/accounts/login/")
            post("/accounts/login/", username="admin", password=DEMO_PASSWORD)
            page = client.get(f"/inbox/{interrupt}/").text
            shown = re.search(r'name="shown" value="([^"]+)"', page)
            assert shown is not None, page
            decided = post(
                f"/inbox/{interrupt}/decide/",
                confirmed=verdict,
                note=note,
                shown=shown[1],
            )
            assert decided.status_code == 302, decided.text

    @property
    def ran(self) -> list[str]:
        """The arguments of every call in its ledger that is done."""
        uri = f"file:{self.data / 'sayso.sqlite3'}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            rows = database.execute(
                "SELECT arguments FROM approvals_toolexecution"
                " WHERE status = 'done' AND NOT read_only ORDER BY id"
            )
            return [arguments for (arguments,) in rows]


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    other = OtherSayso(tmp_path_factory.mktemp("other"))
    other.start()
    other.manage("shell", "--no-imports", "-c", SET_UP)
    other.token = other.manage("create_token", "ops-reviewer").splitlines()[-1]
    yield other
    other.stop()


@pytest.fixture
def other(process, behind_desk):
    headers = {"Authorization": f"Bearer {process.token}"}
    behind_desk(process.address("file-ops"), Profile.OTHER, headers=headers)
    return process


def said(run):
    """All that its agent said."""
    shown = [members for event, members in events.shown(run) if event.type == DELTA]
    return "".join(members["delta"] for members in shown)


def test_m2_approved_here_it_runs_there_once(other, say, rita):
    before = len(other.ran)
    run = say("delete report.txt")
    [interrupt] = run.interrupts.open()
    assert interrupt.arguments == '{"filename":"report.txt"}'
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED
    assert other.ran[before:] == ['{"filename":"report.txt"}']
    assert results(run) == [ToolExecution.objects.get().result]
    assert "report.txt" in results(run)[0]
    assert "delete" in results(run)[0].lower()


def test_m3_mixed_answers_and_a_note_get_there(other, say, rita):
    before = len(other.ran)
    run = say("delete notes.md and todo.md")
    run = decide(run, rita, yes(), no("We still need it."))
    assert run.status == RunStatus.FINISHED
    assert len(other.ran) == before + 1
    denied = "Not executed: a reviewer denied this call. We still need it."
    assert denied in results(run)


def test_m4_edited_arguments_run_there(other, say, rita):
    edited = yes(arguments={"filename": "report.txt"}, note="Only the report.")
    run = decide(say("delete a.txt"), rita, edited)
    assert run.status == RunStatus.FINISHED
    assert other.ran[-1] == '{"filename":"report.txt"}'
    told = said(run)
    assert told.count("The reviewer had changed it") == 1
    assert told.endswith("It was noted with it: “Only the report.”.")


def test_m3_denied_there_first_nothing_runs_and_the_case_says_so(other, say, rita):
    before = len(other.ran)
    run = say("delete report.txt")
    [interrupt] = run.interrupts.open()
    other.decide(interrupt.framework_ref, "deny", "Never.")
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED
    assert len(other.ran) == before
    assert any("Never." in told for told in results(run))


def test_m3_approved_there_first_it_runs_once(other, say, rita):
    before = len(other.ran)
    run = say("delete report.txt")
    [interrupt] = run.interrupts.open()
    other.decide(interrupt.framework_ref, "approve")
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED
    assert len(other.ran) == before + 1
    assert "report.txt" in results(run)[0]


def test_m3_denied_here_after_it_ran_there_nobody_says_that_it_did_not(
    other, say, rita
):
    before = len(other.ran)
    run = say("delete report.txt")
    [interrupt] = run.interrupts.open()
    other.decide(interrupt.framework_ref, "approve")
    run = decide(run, rita, no())
    assert run.status == RunStatus.FINISHED
    assert len(other.ran) == before + 1
    assert "report.txt" in results(run)[0]
    assert "Not executed" not in results(run)[0]


def test_m3_cancelled_here_the_next_message_is_answered(other, say, rita):
    before = len(other.ran)
    run = decide(say("delete report.txt"), rita, (Verdict.CANCEL_RUN, {}))
    assert run.status == RunStatus.CANCELLED
    run = say("list the files", after=run)
    assert run.status == RunStatus.FINISHED
    assert len(other.ran) == before


def test_m9_who_may_not_decide_there_learns_it(process, behind_desk, say, rita):
    headers = {"Authorization": f"Bearer {process.token}"}
    behind_desk(process.address("banking"), Profile.OTHER, headers=headers)
    before = len(process.ran)
    run = say("Please transfer 20 EUR to Ann")
    run = decide(run, rita, yes())
    assert run.status == RunStatus.WAITING
    assert len(process.ran) == before
    execution = ToolExecution.objects.get()
    assert execution.status == ExecutionStatus.FAILED
    assert execution.result.startswith(
        "The agent told no result, and asks for the same"
    )
