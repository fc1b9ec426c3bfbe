"""The people and the cases of the tests.

Rita and Ravi review for Ops, Fin for Finance; Owen only watches; Mia asks agents for
things; Ada administers; Aud audits; Eve has an account and no business here.
Cases are made by the services, so none can be in a state the product cannot reach.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals import services
from approvals.models import Interrupt, Policy, Run
from approvals.schemas import InterruptDraft, ToolCall, ToolSpec
from approvals.services import Ballot
from approvals.states import Gate, NoteRule, Risk, Verdict

AGENT = "clerk"
OPS = "Ops reviewers"
FINANCE = "Finance reviewers"

TOOLS = (
    ToolSpec(
        name="delete_file",
        parameters={
            "type": "object",
            "properties": {"filename": {"type": "string"}},
            "required": ["filename"],
        },
        risk=Risk.HIGH,
        title="Delete {filename}",
        approve_label="Approve and delete file",
        consequence="The file is gone for good.",
    ),
    ToolSpec(
        name="list_files",
        parameters={"type": "object", "properties": {}},
        risk=Risk.LOW,
        read_only=True,
    ),
    ToolSpec(
        name="post_note",
        parameters={
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
        risk=Risk.LOW,
    ),
    ToolSpec(
        name="pay",
        parameters={
            "type": "object",
            "properties": {
                "amount": {"type": "number"},
                "account": {"type": "string"},
                "pin": {"type": "string"},
            },
            "required": ["amount", "account"],
        },
        secrets=("pin",),
        title="Pay {amount} to {account}",
    ),
)


@pytest.fixture
def desk(db: None) -> None:
    """The groups, tools and policies every case needs."""
    services.prepare()
    services.register_tools(AGENT, TOOLS)
    ops = services.make_group(OPS)
    finance = services.make_group(FINANCE)
    Policy.objects.create(
        position=1,
        name="Free tools",
        agent_pattern=AGENT,
        tool_pattern="list_files",
        gate=Gate.ALLOW,
    )
    Policy.objects.create(
        position=2,
        name="Notes",
        agent_pattern=AGENT,
        tool_pattern="post_*",
        gate=Gate.ALLOW,
    )
    destructive = Policy.objects.create(
        position=3,
        name="Destructive file tools",
        agent_pattern=AGENT,
        tool_pattern="delete_*",
        note_rule=NoteRule.ON_DENY,
    )
    destructive.groups.add(ops)
    money = Policy.objects.create(
        position=4, name="Money out", agent_pattern=AGENT, tool_pattern="pay"
    )
    money.groups.add(finance)


@pytest.fixture
def make_person(desk: None) -> Callable[..., User]:
    def make(username: str, *groups: str, **fields: Any) -> User:
        user = User.objects.create(username=username, **fields)
        user.set_password("secret-for-tests")
        user.save()
        user.groups.set(Group.objects.filter(name__in=groups))
        return user

    return make


@pytest.fixture
def rita(make_person: Callable[..., User]) -> User:
    return make_person("rita", OPS, first_name="Rita", last_name="Okafor")


@pytest.fixture
def ravi(make_person: Callable[..., User]) -> User:
    return make_person("ravi", OPS, first_name="Ravi", last_name="Nair")


@pytest.fixture
def fin(make_person: Callable[..., User]) -> User:
    return make_person("fin", FINANCE)


@pytest.fixture
def owen(make_person: Callable[..., User]) -> User:
    return make_person("owen", "Watchers")


@pytest.fixture
def aud(make_person: Callable[..., User]) -> User:
    return make_person("aud", "Auditors")


@pytest.fixture
def mia(make_person: Callable[..., User]) -> User:
    return make_person("mia")


@pytest.fixture
def eve(make_person: Callable[..., User]) -> User:
    return make_person("eve")


@pytest.fixture
def ada(make_person: Callable[..., User]) -> User:
    return make_person("ada", is_staff=True, is_superuser=True)


def call(
    tool: str = "delete_file",
    *,
    call_id: str = "call-1",
    turn: int = 1,
    **arguments: Any,
) -> ToolCall:
    if not arguments and tool == "delete_file":
        arguments = {"filename": "report.txt"}
    return ToolCall(
        turn=turn, call_id=call_id, tool=tool, arguments=json.dumps(arguments)
    )


def calls(count: int) -> list[ToolCall]:
    return [
        call(call_id=f"call-{number}", filename=f"file-{number}.txt")
        for number in range(1, count + 1)
    ]


@pytest.fixture
def make_run(mia: User) -> Callable[..., Run]:
    """A queued run that Mia asked for."""

    def make(**fields: Any) -> Run:
        options: dict[str, Any] = {
            "agent": AGENT,
            "framework": "test",
            "thread": uuid.uuid4(),
            "requester": mia,
            "title": "Please delete report.txt",
        }
        return services.queue_run(**(options | fields))

    return make


@pytest.fixture
def make_interrupts(make_run: Callable[..., Run]) -> Callable[..., list[Interrupt]]:
    """Requests of one run that waits, one for each call."""

    def make(
        proposed: int | Sequence[ToolCall] = 1, *, run: Run | None = None
    ) -> list[Interrupt]:
        if isinstance(proposed, int):
            proposed = calls(proposed)
        run = run or make_run()
        claim = services.claim_run(run.pk, owner="worker")
        assert claim is not None
        drafts = [
            InterruptDraft(call=each, verdicts=tuple(Verdict)) for each in proposed
        ]
        services.open_interrupts(run.pk, attempt=claim.attempt, drafts=drafts)
        return list(run.interrupts.order_by("created", "call_id"))

    return make


@pytest.fixture
def interrupt(make_interrupts: Callable[..., list[Interrupt]]) -> Interrupt:
    return make_interrupts(1)[0]


def ballot(
    interrupt: Interrupt, verdict: Verdict = Verdict.APPROVE, **fields: Any
) -> Ballot:
    """What the decision form of this page would send now."""
    fields.setdefault("shown", services.shown_digest(interrupt))
    return Ballot(verdict=verdict, **fields)
