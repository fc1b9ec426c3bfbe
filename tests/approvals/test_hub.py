"""The hub and the relay: who is told, how often, and what happens when telling fails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict

import pytest
from asgiref.sync import async_to_sync
from channels.layers import channel_layers
from websockets.sync.client import connect

from approvals import hub as hub_module
from approvals import live, relay, sockets
from approvals.admission import Claim, Verdict
from approvals.hub import Hub
from approvals.relay import Relay
from approvals.sockets import HELLO, Message, Socket
from tests.approvals.pages import (
    ROOT,
    open_files,
    served_environment,
    serving,
    sign_in,
)


def run(scenario):
    async_to_sync(scenario)()


class Listener:
    """A socket without a browser."""

    def __init__(self, hub, *scopes, stuck=False):
        self.frames = []
        self.free, self.news = asyncio.Event(), asyncio.Event()
        if not stuck:
            self.free.set()
        verdict = Verdict(user=1, scopes=frozenset(scopes))
        self.socket = Socket(Claim("s"), verdict, send=self.send, close=self.close)
        hub.join(self.socket)
        self.socket.open()

    async def send(self, text):
        await self.free.wait()
        self.frames.append(json.loads(text))
        self.news.set()

    async def has(self, count):
        while len(self.frames) < count:
            self.news.clear()
            await self.news.wait()

    async def close(self, code):
        self.frames.append(code)

    def ops(self):
        return [frame["op"] for frame in self.frames]

    def texts(self):
        return [frame.get("text") for frame in self.frames]


@pytest.fixture
def hub():
    yield Hub()
    live.connect(hub_module.hub.publish)


async def settled():
    """Let the loop come to what is due, however rarely the machine lets it run: each of
    these is a turn of its own, and together they are longer than any pause of a socket."""
    for _ in range(20):
        await asyncio.sleep(sockets.DELTA_PAUSE / 6)


def ping(number=1):
    return {"op": "run", "id": str(number)}


def delta(seq, text="x", *, message="m", attempt=1):
    fields = {"op": "delta", "id": "r", "attempt": attempt, "message": message}
    return fields | {"seq": seq, "text": text}


# Within the process


def test_a_socket_hears_a_message_once_though_several_scopes_match(hub):
    async def scenario():
        hub.attach()
        one = Listener(hub, "a", "b", "c")
        other = Listener(hub, "c")
        hub.publish(frozenset({"a", "b", "x"}), ping())
        await settled()
        assert one.frames == [{"v": 1, "op": "hello"}, {"v": 2} | ping()]
        assert other.ops() == ["hello"]

    run(scenario)


def test_publishing_from_any_thread_arrives_soon_and_in_order(hub):
    async def scenario():
        hub.attach()
        listener = Listener(hub, "a")
        await settled()
        thread = threading.Thread(
            target=lambda: [hub.publish(frozenset("a"), ping(n)) for n in range(50)]
        )
        thread.start()
        async with asyncio.timeout(2):
            await listener.has(51)
        assert [f["id"] for f in listener.frames[1:]] == [str(n) for n in range(50)]
        assert [f["v"] for f in listener.frames] == list(range(1, 52))

    run(scenario)


def test_without_a_web_loop_publishing_does_nothing(hub):
    hub.publish(frozenset("a"), ping())

    async def scenario():
        hub.attach()

    run(scenario)
    # The loop is closed by now.
    hub.publish(frozenset("a"), ping())


def test_a_new_web_loop_takes_over(hub):
    async def scenario():
        hub.attach()
        listener = Listener(hub, "a")
        live.publish({"a"}, ping())
        await settled()
        assert listener.ops() == ["hello", "run"]

    run(scenario)
    run(scenario)


def test_who_has_left_hears_nothing(hub):
    async def scenario():
        hub.attach()
        listener = Listener(hub, "a")
        await settled()
        hub.leave(listener.socket)
        hub.publish(frozenset("a"), ping())
        await settled()
        assert listener.ops() == ["hello"]
        assert not hub._listeners

    run(scenario)


def test_a_slow_socket_is_told_to_fetch_everything_instead(hub):
    async def scenario():
        hub.attach()
        slow, quick = Listener(hub, "a", stuck=True), Listener(hub, "a")
        await settled()
        for number in range(1000):
            hub.publish(frozenset("a"), ping(number))
            await asyncio.sleep(0)
        await settled()
        assert len(slow.socket._pending) <= sockets.MOST_PENDING
        slow.free.set()
        await settled()
        assert len(slow.frames) <= sockets.MOST_PENDING + 1
        assert slow.ops()[1] == "hello"
        assert [f["v"] for f in slow.frames] == list(range(1, len(slow.frames) + 1))
        assert quick.frames[-1]["id"] == slow.frames[-1]["id"] == "999"

    run(scenario)


def test_a_flood_at_a_busy_loop_becomes_a_hello(hub, monkeypatch):
    monkeypatch.setattr(hub_module, "MOST_WAITING", 10)

    async def scenario():
        hub.attach()
        listener = Listener(hub, "a")
        await settled()
        for number in range(25):
            hub.publish(frozenset("a"), ping(number))
        await settled()
        assert "hello" in listener.ops()[1:]

    run(scenario)


def test_deltas_are_joined_and_lose_nothing(hub):
    async def scenario():
        hub.attach()
        listener = Listener(hub, "a")
        begun = time.monotonic()
        for seq in range(1, 101):
            hub.publish(frozenset("a"), delta(seq, f"{seq} "))
            await asyncio.sleep(0.001)
        await settled()
        deltas = listener.frames[1:]
        # One at once, and then no more than the pauses of that time.
        assert len(deltas) <= 1 + (time.monotonic() - begun) / sockets.DELTA_PAUSE
        assert "".join(d["text"] for d in deltas).split() == [
            str(number) for number in range(1, 101)
        ]
        expected = 1
        for one in deltas:
            assert one.get("first", one["seq"]) == expected
            expected = one["seq"] + 1

    run(scenario)


def test_only_what_follows_directly_in_one_text_is_joined():
    joined = Message(delta(1, "a")).joined(Message(delta(2, "b")))
    assert joined is not None
    assert joined.fields == delta(2, "ab") | {"first": 1}
    again = joined.joined(Message(delta(3, "c")))
    assert again is not None
    assert again.fields == delta(3, "abc") | {"first": 1}
    for other in (delta(3), delta(1), delta(2, message="n"), delta(2, attempt=2)):
        assert Message(delta(1)).joined(Message(other)) is None


def test_a_message_after_deltas_does_not_wait_and_keeps_the_order(hub, monkeypatch):
    async def scenario():
        hub.attach()
        listener = Listener(hub, "a")
        hub.publish(frozenset("a"), delta(1))
        await listener.has(2)
        monkeypatch.setattr(sockets, "DELTA_PAUSE", 600)
        hub.publish(frozenset("a"), delta(2))
        hub.publish(frozenset("a"), ping())
        async with asyncio.timeout(60):
            await listener.has(4)
        assert listener.ops() == ["hello", "delta", "delta", "run"]

    run(scenario)


def test_two_hundred_sockets_all_end_with_the_newest(hub):
    """B102: within one process."""

    async def scenario():
        hub.attach()
        listeners = [Listener(hub, "a") for _ in range(200)]
        for number in range(50):
            hub.publish(frozenset("a"), ping(number))
        await settled()
        for listener in listeners:
            assert [frame.get("id") for frame in listener.frames[1:]] == [
                str(number) for number in range(50)
            ]

    run(scenario)


def test_a_socket_that_cannot_be_written_is_forgotten(hub):
    async def scenario():
        hub.attach()
        broken, fine = Listener(hub, "a"), Listener(hub, "a")
        await settled()

        async def fail(text):
            raise OSError("gone")

        broken.socket._send = fail
        for _ in range(3):
            hub.publish(frozenset("a"), ping())
            await settled()
        assert broken.ops() == ["hello"]
        assert len(fine.frames) == 4

    run(scenario)


# Between processes


class Line:
    """A channel layer for several processes, in this one; it can be cut or lossy."""

    def __init__(self):
        self.queues = defaultdict(list)
        self.down = False
        self.lossy = False
        self.carried = 0
        self.refused = 0

    async def new_channel(self):
        return uuid.uuid4().hex

    async def group_add(self, group, channel):
        if self.down:
            raise OSError("down")
        self.queues[channel] = (asyncio.get_running_loop(), asyncio.Queue())

    async def receive(self, channel):
        return await self.queues[channel][1].get()

    async def group_send(self, group, message):
        if self.down:
            self.refused += 1
            raise OSError("down")
        if self.lossy:
            return
        self.carried += 1
        for loop, queue in list(self.queues.values()):
            loop.call_soon_threadsafe(queue.put_nowait, message)


class Process:
    """The relay of one process and what it hears."""

    def __init__(self, line, *, listens=True):
        self.heard, self.lost = [], 0
        self.relay = Relay(lambda: line, deliver=self.deliver, lost=self.lose)
        if listens:
            self.relay.listen()
            until(lambda: self.lost)
            self.lost = 0

    def deliver(self, scopes, fields):
        self.heard.append((scopes, fields))

    def lose(self):
        self.lost += 1


def until(condition, seconds=5):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "It did not happen in time."
        time.sleep(0.01)


@pytest.fixture
def line(monkeypatch):
    monkeypatch.setattr(relay, "BEAT", 0.2)
    monkeypatch.setattr(relay, "SILENCE", 0.6)
    monkeypatch.setattr(relay, "RETRY", 0.05)
    return Line()


@pytest.fixture
def processes(line):
    made = []

    def make(**options):
        made.append(Process(line, **options))
        return made[-1]

    yield make
    for process in made:
        process.relay.stop()
    assert not [t for t in threading.enumerate() if t.name == "live-relay"]


def test_the_others_hear_it_and_oneself_does_not(processes):
    one, two = processes(), processes()
    worker = processes(listens=False)
    one.relay.send(frozenset("a"), ping(1))
    worker.relay.send(frozenset("ab"), ping(2))
    until(lambda: len(two.heard) == 2)
    until(lambda: one.heard)
    assert one.heard == [(frozenset("ab"), ping(2))]
    assert worker.heard == []
    assert two.lost == one.lost == 0


def test_a_dropped_message_is_noticed_with_the_next(processes, line, monkeypatch):
    monkeypatch.setattr(relay, "BEAT", 60)
    one, two = processes(), processes()
    one.relay.send(frozenset("a"), ping(1))
    until(lambda: two.heard)
    line.lossy = True
    one.relay.send(frozenset("a"), ping(2))
    one.relay.drain(1)
    line.lossy = False
    assert two.lost == 0
    one.relay.send(frozenset("a"), ping(3))
    until(lambda: two.lost == 1)
    assert [fields["id"] for _, fields in two.heard] == ["1", "3"]


def test_a_dropped_message_is_noticed_when_nothing_follows(processes, line):
    """B102: between processes, where layers drop messages silently."""
    one, two = processes(), processes()
    one.relay.send(frozenset("a"), ping(1))
    until(lambda: two.heard)
    line.lossy = True
    one.relay.send(frozenset("a"), ping(2))
    one.relay.drain(1)
    line.lossy = False
    until(lambda: two.lost == 1, 2)
    beats = line.carried
    until(lambda: line.carried >= beats + 4)
    one.relay.send(frozenset("a"), ping(3))
    until(lambda: two.heard[-1][1]["id"] == "3")
    assert two.lost == 1


def test_a_dropped_first_message_is_noticed(processes, line):
    one, two = processes(listens=False), processes()
    line.lossy = True
    one.relay.send(frozenset("a"), ping(1))
    one.relay.drain(1)
    line.lossy = False
    until(lambda: two.lost == 1, 2)


def test_an_overflow_is_noticed(processes, line, monkeypatch):
    monkeypatch.setattr(relay, "MOST_WAITING", 5)
    one, two = processes(), processes()
    one.relay.send(frozenset("a"), ping(0))
    until(lambda: two.heard)
    for number in range(1, 500):
        one.relay.send(frozenset("a"), ping(number))
    until(lambda: two.lost >= 1)
    until(lambda: two.heard[-1][1]["id"] == "499")


def test_a_line_that_comes_back_is_told_of_and_logged_once(processes, line, caplog):
    one, two = processes(), processes()
    line.down = True
    for number in range(5):
        refused = line.refused
        one.relay.send(frozenset("a"), ping(number))
        until(lambda before=refused: line.refused > before)
    line.down = False
    until(lambda: one.lost and two.lost)
    one.relay.send(frozenset("a"), ping(9))
    until(lambda: two.heard and two.heard[-1][1]["id"] == "9")
    until(lambda: "can be reached again" in caplog.text)
    assert caplog.text.count("cannot be reached") <= 2  # once a process


def test_a_line_that_is_silently_dead_is_built_again(processes, line):
    one = processes()
    first = set(line.queues)
    line.queues.clear()
    until(lambda: one.lost, 5)
    assert not first & set(line.queues)


def test_a_hub_tells_its_pages_to_fetch_when_something_was_lost(hub, line, monkeypatch):
    monkeypatch.setattr(hub_module, "make_layer", lambda: line)

    async def scenario():
        hub.attach()
        await asyncio.to_thread(until, lambda: line.queues)
        await settled()
        listener = Listener(hub, "a")
        await settled()
        message = {
            "type": "live",
            "by": "another",
            "seq": 1,
            "items": [[["a"], ping()]],
        }
        await line.group_send("live", message)
        await settled()
        await line.group_send("live", message | {"seq": 3})
        await settled()
        assert listener.ops()[:2] == ["hello", "run"]
        # The hello may cover the message that showed the gap.
        assert listener.ops()[2:] in (["hello"], ["run", "hello"])

    run(scenario)
    hub._relay.stop()


# On real servers, through a real Redis


@pytest.mark.django_db(transaction=True)
def test_processes_tell_each_other_through_redis(rita, owen, redis_url, tmp_path):
    """Two web processes, and a command that publishes and ends."""
    extra = {"REDIS_URL": redis_url, "SAYSO_REDIS_PREFIX": f"test{uuid.uuid4().hex}"}
    cookies = [{"Cookie": f"sayso_session={sign_in(p)}"} for p in (rita, owen)]
    publish = (
        "from approvals import live;"
        f"live.publish({{'all', 'user.{rita.pk}'}}, {{'op': 'run', 'id': 'x'}})"
    )
    with (
        serving(tmp_path, **extra) as one,
        serving(tmp_path, **extra) as two,
        connect(one.address(), additional_headers=cookies[0]) as first,
        connect(two.address(), additional_headers=cookies[1]) as second,
    ):
        for page in (first, second):
            assert json.loads(page.recv(5))["op"] == "hello"
        subprocess.run(
            [sys.executable, "manage.py", "shell", "-c", publish],
            cwd=ROOT,
            env=served_environment(tmp_path, **extra),
            check=True,
            timeout=60,
        )
        assert next_but_hello(first) == "x"
        assert next_but_hello(second) == "x"
    for served in (one, two):
        assert "Traceback" not in served.log.read_text()


def test_b110_many_pushes_from_many_threads_use_one_connection(redis_url, settings):
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [redis_url], "prefix": f"test{uuid.uuid4().hex}"},
        }
    }
    sender = Relay(
        lambda: channel_layers.make_backend("default"),
        deliver=lambda scopes, fields: None,
        lost=lambda: None,
    )

    def push(count):
        for number in range(count):
            sender.send(frozenset({"a"}), ping(number))
        sender.drain(60)

    def used():
        links = [link for link in open_files() if link.startswith("socket:")]
        return len(links), threading.active_count()

    try:
        push(1)
        before = used()
        crowd = [threading.Thread(target=push, args=(100,)) for _ in range(10)]
        for each in crowd:
            each.start()
        for each in crowd:
            each.join()
        assert not sender._outbox
        assert used() == before
    finally:
        sender.stop()


def next_but_hello(page):
    """The id of the next message; a hello may come first, when the line is ready."""
    while True:
        message = json.loads(page.recv(5))
        if message["op"] != "hello":
            return message["id"]


def test_a_hello_covers_what_waits(hub):
    async def scenario():
        hub.attach()
        listener = Listener(hub, "a", stuck=True)
        await settled()
        for number in range(5):
            listener.socket.offer(Message(ping(number)))
        listener.socket.offer(HELLO)
        listener.free.set()
        await settled()
        assert listener.ops() == ["hello", "hello"]

    run(scenario)
