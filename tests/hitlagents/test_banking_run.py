"""The agent banking in one process: the real framework, runner, rows and bank."""

from __future__ import annotations

import json
import threading
import uuid
from decimal import Decimal

import pytest
from django.db import connection

from approvals import services
from approvals.exceptions import InvalidDecision
from approvals.models import Decision, ToolExecution
from approvals.policies import load_rules, rule_on
from approvals.states import RunStatus, Verdict
from hitlagents import catalog, conversations, events, registry
from hitlagents.adapters import genkit_models
from hitlagents.adapters.base import AgentRunError, Gating
from hitlagents.demo import bank, banking, people, scripted_banking
from hitlagents.demo.scripted import Reply
from hitlagents.models import BankAccount, Checkpoint, LedgerEntry, Thread
from tests.hitlagents.driving import advance, decide, results, rules, yes
from tests.hitlagents.openai_stub import MODEL, OpenAIStub
from tests.hitlagents.reading import said
from tests.plugins.cast import ballot

pytestmark = pytest.mark.django_db(transaction=True)

RENT = "Transfer $500 to account 12345 for rent."


@pytest.fixture
def thread(mia, fresh):
    rules("banking", "lookup_balance")
    return Thread.objects.create(agent="banking", owner=mia)


@pytest.fixture
def say(thread, mia):
    return lambda text: advance(conversations.send(thread.pk, text, author=mia))


def no(note: str):
    return Verdict.DENY, {"note": note}


def moved() -> list[tuple[str, Decimal]]:
    return [(entry.target.number, entry.amount) for entry in LedgerEntry.objects.all()]


def test_m12_a_transfer_waits_and_happens_once(say, rita, mia):
    run = say(RENT)
    assert run.status == RunStatus.WAITING, run.error
    assert moved() == []
    [waiting] = run.interrupts.open()
    assert json.loads(waiting.arguments) == {"amount": 500, "toAccount": "12345"}
    assert "500" in said(run)
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert moved() == [("12345", Decimal(500))]
    assert said(run).endswith(
        "Transferred 500.00 to Account 12345 (Landlord). Account 1001 (Main) now holds "
        "4,500.00."
    )
    assert Decision.objects.get().delivery == "applied"
    assert [b.amount for b in bank.balances(mia.pk)] == [4500, 1200, 500, 0]


def test_a_denied_transfer_leaves_the_money_and_gives_the_note(say, rita):
    run = decide(say(RENT), rita, no("Rent was paid."))
    assert run.status == RunStatus.FINISHED, run.error
    assert moved() == []
    assert said(run).endswith(
        "I did not transfer 500 to 12345, because the reviewer said “Rent was paid.”."
    )


def test_parallel_transfers_are_decided_each(say, rita):
    run = say("Send 80 to Electricity, 250 to Savings and 10 to 12345")
    run = decide(
        run,
        rita,
        no("not that"),
        yes(arguments={"amount": 200.5, "toAccount": "Savings"}),
        (Verdict.RESPOND, {"output": "It was paid in cash."}),
    )
    assert run.status == RunStatus.FINISHED, run.error
    assert moved() == [("1002", Decimal("200.50"))]
    assert "I did not transfer 80 to Electricity" in said(run)
    assert "It was paid in cash." in said(run)
    changed = "The reviewer had changed it: amount (was 250, now 200.5)."
    assert changed in said(run)


def test_the_conversation_goes_on(say, rita):
    decide(say(RENT), rita, yes())
    run = decide(say("and another 200 to 777"), rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert moved() == [("12345", Decimal(500)), ("777", Decimal(200))]
    run = say("What is my balance?")
    assert run.status == RunStatus.FINISHED, run.error
    assert results(run) == ["Account 1001 (Main) holds 4,300.00."]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("transfer 6000 to 777", "which is not enough for 6,000.00"),
        ("transfer 10 to 424242", "There is no account “424242”."),
        ("transfer 1.005 to 777", "two decimal places"),
        ("transfer 10 to Main", "the money would come from"),
    ],
)
def test_what_the_bank_refuses_is_said_in_words(say, rita, text, told):
    run = decide(say(text), rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert told in said(run)
    assert moved() == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("transfer 0 to 777", "0 is less than or equal to the minimum of 0"),
        ("transfer -5 to 777", "-5 is less than or equal to the minimum of 0"),
        (
            "transfer 99999999999999999999 to 777",
            "greater than the maximum of 1000000000",
        ),
    ],
)
def test_nobody_is_asked_about_an_amount_that_cannot_be(say, text, why):
    run = advance(say(text))
    assert run.status == RunStatus.FINISHED, run.error
    decision = Decision.objects.get()
    assert (decision.verdict, decision.channel) == (Verdict.DENY, "intake")
    assert why in decision.note
    assert moved() == []


@pytest.mark.parametrize(
    ("amount", "told"),
    [("0", "more than zero"), ("-5", "more than zero"), ("1000000001", "at most")],
)
def test_the_bank_itself_takes_no_such_amount_either(thread, amount, told):
    with pytest.raises(bank.BankError, match=told):
        bank.transfer(
            thread.pk,
            run_id=uuid.uuid4(),
            call_id="c",
            amount=Decimal(amount),
            to="777",
        )


def test_m15_an_edited_amount_must_be_one(say, rita):
    run = say(RENT)
    asked = run.interrupts.get()
    edited = ballot(asked, arguments={"amount": 0, "toAccount": "12345"})
    with pytest.raises(InvalidDecision, match="amount: 0 is less than or equal"):
        services.decide(asked.pk, edited, reviewer=rita)


def test_an_amount_is_exact_and_without_a_currency(say, rita, mia):
    run = decide(
        say("Transfer €0.10 to 777 and $4,999.90 to Savings"), rita, yes(), yes()
    )
    assert moved() == [("777", Decimal("0.10")), ("1002", Decimal("4999.90"))]
    assert bank.balances(mia.pk)[0].amount == 0
    invented = set("$€£") & set(said(run))
    assert invented == set()


def test_a_failure_after_the_transfer_is_retried_without_a_second_one(
    say, rita, mia, monkeypatch
):
    """B08, on Genkit."""
    failures = [ConnectionError("reset")]

    def script(history):
        if failures and any(type(item).__name__ == "Result" for item in history):
            raise failures.pop()
        return scripted_banking.reply(history)

    monkeypatch.setattr(
        banking, "from_environment", lambda _: genkit_models.scripted(script)
    )
    run = decide(say(RENT), rita, yes())
    assert run.status == RunStatus.FAILED
    assert moved() == [("12345", Decimal(500))]
    services.retry_run(run.pk, actor=mia)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert moved() == [("12345", Decimal(500))]
    assert ToolExecution.objects.get(run=run).status == "done"
    assert "Transferred 500.00" in said(run)


def test_the_state_is_plain_and_holds_the_whole_session(say):
    run = say(RENT)
    checkpoint = Checkpoint.objects.get(run=run)
    state = json.loads(checkpoint.state)
    assert (checkpoint.framework, checkpoint.schema) == ("Genkit", 1)
    assert state["session"]["sessionId"] == str(run.thread)
    assert [m["role"] for m in state["session"]["messages"]] == ["user", "model"]


def test_m2_the_interrupt_names_the_framework(say):
    shown = {event.type: members for event, members in events.shown(say(RENT))}
    (shape,) = shown["RUN_FINISHED"]["outcome"]["interrupts"]
    assert shape["reason"] == "tool_call"
    assert shape["toolCallId"] == shown["TOOL_CALL_START"]["toolCallId"]
    call = shape["metadata"]["genkit"]["function_call"]
    assert call["arguments"] == {"amount": 500, "toAccount": "12345"}


def test_everybody_has_a_bank_of_their_own(say, rita, mia, eve):
    decide(say(RENT), rita, yes())
    other = Thread.objects.create(agent="banking", owner=eve)
    assert "5,000.00" in bank.balance(other.pk, "Main")
    assert list(bank.ledger(eve.pk)) == []
    [entry] = bank.ledger(mia.pk)
    assert (entry.source.name, entry.target.name) == ("Main", "Landlord")


def test_the_same_call_transfers_once_however_often_it_is_made(thread):
    call = {"run_id": uuid.uuid4(), "call_id": "c1"}
    first, second = (
        bank.transfer(thread.pk, **call, amount=Decimal(5), to="777") for _ in range(2)
    )
    assert first == second
    assert len(moved()) == 1


def test_two_transfers_at_once_cannot_spend_the_same_money(thread):
    bank.balance(thread.pk, "Main")
    barrier, told = threading.Barrier(2), []

    def send(call_id: str) -> None:
        barrier.wait()
        try:
            bank.transfer(
                thread.pk,
                run_id=uuid.uuid4(),
                call_id=call_id,
                amount=Decimal(3000),
                to="777",
            )
        except bank.BankError as error:
            told.append(str(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=send, args=(name,)) for name in ("a", "b")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(moved()) == 1
    assert "not enough" in told[0]


def test_accounts_are_opened_once(thread, mia):
    assert bank.balances(mia.pk) == []
    for _ in range(2):
        bank.balance(thread.pk, "Main")
    assert BankAccount.objects.filter(owner=mia).count() == len(bank.ACCOUNTS)
    with pytest.raises(bank.BankError, match="no account “"):
        bank.balance(thread.pk, "x" * 1000)


def test_finance_decides_transfers_in_the_demo(db):
    services.prepare()
    people.seed()
    ruling = rule_on("banking", "transferMoney", rules=load_rules())
    assert ruling.groups == (people.FINANCE,)


def test_without_the_framework_the_agent_says_how_to_get_it(fresh, monkeypatch):
    monkeypatch.setattr(registry.catalog, "installed", lambda spec: False)
    with pytest.raises(AgentRunError, match="pip install genkit genkit-middleware"):
        registry.adapter_for("banking", frozenset())
    assert catalog.get("banking") is banking.SPEC


def test_the_desk_hears_of_the_tools_by_their_own_names():
    agent = banking.build(
        Gating(allowed=frozenset()), model=genkit_models.scripted(lambda _: Reply("x"))
    )
    specs = {spec.name: spec for spec in agent.tools}
    assert set(specs) == {"lookup_balance", "transferMoney"}
    amount = specs["transferMoney"].parameters["properties"]["amount"]
    assert amount["type"] == "number"
    assert specs["transferMoney"].title == "Transfer {amount} to account {toAccount}"


def test_m12_a_real_model_by_environment_takes_the_same_way(
    say, rita, monkeypatch, fresh
):
    with OpenAIStub(scripted_banking.reply) as stub:
        for name, value in stub.environ.items():
            monkeypatch.setenv(name, value)
        assert banking.SPEC.model_label().startswith(f"{MODEL} at 127.0.0.1")
        run = say("Send 80 to Electricity and 250.5 to Savings")
        run = decide(run, rita, no("not that"), yes())
        assert run.status == RunStatus.FINISHED, run.error
        assert moved() == [("1002", Decimal("250.50"))]
        assert "the reviewer said “not that”" in said(run)
        decide(say("and another 20 to 777"), rita, yes())
    assert moved()[1:] == [("777", Decimal(20))]
    offered = {tool["function"]["name"] for tool in stub.requests[0]["tools"]}
    assert offered == {"lookup_balance", "transferMoney"}
