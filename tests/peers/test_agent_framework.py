from __future__ import annotations
import pytest
from approvals.models import *
from hitlagents.remote.profiles import Profile
from hitlagents import events
from approvals.states import *
from tests.hitlagents.driving import decide, results, yes, advance

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

@pytest.fixture(scope="module")
def process(peers_python, start_peer):
    return start_peer(str(peers_python), "agent_framework_server")

@pytest.fixture
def peer(process, behind_desk, request):
    process.clear()
    path = getattr(request, "param", "plain")
    behind_desk(f"http://127.0.0.1:{process.port}/{path}", Profile.AGENT_FRAMEWORK)
    return process

def show(run, peer):
    print(run.status, run.error)
    for i in run.interrupts.all(): print("  I", i.tool, i.title, i.arguments, i.status, i.editable, i.together, i.consequence, i.verdicts)
    for e in ToolExecution.objects.all(): print("  X", e.status, e.result, e.call_id)
    for e, m in events.shown(run): print("  E", e.type, str(m)[:150])
    for k in ("ran","answers"): print("  ", k, peer.noted(k))
    if peer.noted("told"): print("  told", peer.noted("told")[-1])

def test_all(peer, say, rita):
    run = say("delete a.txt"); show(run, peer)
    run = decide(run, rita, yes()); show(run, peer)
    run = say("delete b.txt", after=run)
    run = decide(run, rita, (Verdict.DENY, {"note": "Keep it"})); show(run, peer)
    run = say("delete c.txt", after=run)
    run = decide(run, rita, (Verdict.CANCEL_RUN, {"note": "Keep it"})); show(run, peer)
    run = say("hello", after=run); show(run, peer)
    run = say("delete d.txt delete e.txt", after=run); show(run, peer)
    run = decide(run, rita, yes(), yes()); show(run, peer)
    run = say("delete f.txt list delete g.txt", after=run); show(run, peer)
    run = decide(run, rita, yes(), (Verdict.DENY, {"note": "no"})); show(run, peer)
    run = say("delete h.txt", after=run)
    run = decide(run, rita, yes(arguments='{"filename": "H.txt"}')); show(run, peer)
    assert 0
