// The live line: one socket through hx-ws, its state in words, and what to fetch when.
// Not deferred, as hx-ws is not: the first events would be gone before a module listens.
//
// An element with data-live gets the event "live" when it should fetch itself again:
//   <div data-live hx-get="…" hx-trigger="live">           whatever changed
//   <div data-live="opened interrupt" …>                   only these operations
//   <div data-live="run" data-live-id="UUID" …>            and only this one
// At most once a second, never while a [data-pause] button is pressed, and always after
// a (re)connect, a gap in the numbers, sleep, or a return through the back button.
//
// For other scripts (events on document):
//   sayso:live {v, op, id}       every other message; {op: "hello"} when anything may have changed
//   sayso:delta {id, attempt, first, seq, message, text, …}   text of a run, on that run's page
//   sayso:connection {state}     connecting, live, reconnecting, offline, signedOut, noAccess
(() => {
  const POLL = 15000, OPENS_WITHIN = 5000, TRIES = 3;
  const FIRST_DELAY = 500, LONGEST_DELAY = 15000;
  const PING = 25000, PONG_WITHIN = 5000, ASLEEP = 20000;
  const THROTTLE = 1000;
  const FINAL = {4401: 'signedOut', 4403: 'noAccess'};

  const line = () => document.getElementById('live');
  const emit = (name, detail) => document.dispatchEvent(new CustomEvent(name, {detail}));

  // ── the state, in words ──────────────────────────────────────────────────
  let state = '', retryAt = 0, shownAt = new Date();

  function show(next) {
    const changed = state !== next;
    state = next;
    const text = words();
    document.querySelectorAll('[data-conn]').forEach((element) => {
      element.hidden = false;
      element.dataset.state = state;
      const word = element.querySelector('[data-conn-word]');
      if (word.textContent !== text) word.textContent = text;
    });
    if (changed) emit('sayso:connection', {state});
  }

  function words() {
    const all = document.getElementById('conn-words').dataset;
    if (state === 'reconnecting' && retryAt > Date.now()) {
      return all.reconnectingIn.replace('%s', Math.ceil((retryAt - Date.now()) / 1000));
    }
    if (state === 'offline') {
      const clock = shownAt.toLocaleTimeString(document.documentElement.lang, {hour: '2-digit', minute: '2-digit', hourCycle: 'h23'});
      return all.offline.replace('%s', clock);
    }
    return {connecting: all.connecting, reconnecting: all.reconnecting, live: all.up,
      signedOut: all.signedOut, noAccess: all.noAccess}[state];
  }

  // ── the socket ───────────────────────────────────────────────────────────
  let connection = null, failures = 0, lastV = 0, heardAt = 0, probe = 0, patience = 0, ended = false;

  const isOpen = () => state === 'live';

  // Long enough without a socket is offline; the page then asks slowly instead.
  function lost() {
    show(navigator.onLine && failures < TRIES ? 'reconnecting' : 'offline');
  }

  function waitForOpening() {
    clearTimeout(patience);
    patience = setTimeout(() => {
      if (!isOpen() && !ended) {
        failures = Math.max(failures, TRIES);
        lost();
        poll();
      }
    }, OPENS_WITHIN);
  }

  // A fresh element, because hx-ws connects an element once only.
  function reopen() {
    const old = line();
    if (!old || ended) return;
    hangUp();
    const fresh = old.cloneNode(true);
    fresh.removeAttribute('data-htmx-powered');
    old.replaceWith(fresh);
    htmx.process(fresh);
    waitForOpening();
  }

  function hangUp() {
    clearTimeout(probe);
    probe = 0;
    clearTimeout(connection?.timer);
    connection?.socket?.close();
    connection = null;
  }

  // Is anybody there? A line that was cut without a word looks open for ever.
  function ask() {
    if (!isOpen() || probe) return;
    const asked = Date.now();
    connection.socket.send('{"op": "ping"}');
    probe = setTimeout(() => {
      probe = 0;
      if (heardAt < asked) {
        failures += 1;
        retryAt = 0;
        lost();
        reopen();
      }
    }, PONG_WITHIN);
  }

  document.addEventListener('htmx:ws:after:connection', (event) => {
    connection = event.detail.connection;
    lastV = 0;
  });

  document.addEventListener('htmx:ws:close', (event) => {
    const {reason, code, connection: closed} = event.detail;
    if (connection && closed !== connection) return;
    if (reason !== 'closed') {
      // Another script put another element in its place.
      connection = null;
      if (state) show('connecting');
      waitForOpening();
      return;
    }
    clearTimeout(probe);
    probe = 0;
    ended = code in FINAL;
    if (ended) {
      clearTimeout(patience);
      show(FINAL[code]);
      // Whoever may not listen here may still see something, or must now sign in.
      if (code === 4403) now();
      return;
    }
    failures += 1;
    const delay = Math.min(FIRST_DELAY * 2 ** (failures - 1), LONGEST_DELAY) * (0.7 + 0.6 * Math.random());
    retryAt = Date.now() + delay;
    // hx-ws decides right after this event; told so, its delay is the one that is shown.
    Object.assign(closed.config, {reconnectCodes: [code], reconnectDelay: delay, reconnectMaxDelay: delay, reconnectJitter: 0});
    lost();
  });

  document.addEventListener('htmx:ws:before:message:incoming', (event) => {
    event.detail.cancelled = true;  // There is nothing to swap.
    if (event.detail.connection !== connection) return;
    let message;
    try { message = JSON.parse(event.detail.message.data); } catch { return; }
    const gap = message.v !== lastV + 1;
    lastV = message.v;
    heardAt = Date.now();
    shownAt = new Date();
    if (!isOpen()) {
      failures = 0;
      clearTimeout(patience);
      show('live');
    }
    if (message.op === 'delta') emit('sayso:delta', {...message, first: message.first ?? message.seq});
    else if (message.op !== 'pong') tell(message);
    if (gap && message.op !== 'hello') tell({op: 'hello'});
  });

  // ── what to fetch again ──────────────────────────────────────────────────
  let news = [], due = 0, freshAt = -THROTTLE;

  function tell(message) {
    emit('sayso:live', message);
    news.push(message);
    schedule();
  }

  function now() { tell({op: 'hello'}); }
  function poll() { tell({op: 'hello', polled: true}); }

  // Spread a little, so that all open pages do not ask in the same instant.
  function schedule() {
    if (due) return;
    const rest = THROTTLE - (performance.now() - freshAt);
    due = setTimeout(fetchAgain, rest > 0 ? rest + Math.random() * 250 : Math.random() * 60);
  }

  function fetchAgain() {
    due = 0;
    if (!news.length || document.querySelector('[data-pause][aria-pressed=true]')) return;
    freshAt = performance.now();
    const told = news;
    news = [];
    document.querySelectorAll('[data-live]').forEach((element) => {
      if (told.some((message) => concerns(element, message))) element.dispatchEvent(new CustomEvent('live'));
    });
  }

  function concerns({dataset}, {op, id}) {
    if (op === 'hello') return true;
    if (dataset.live && !dataset.live.split(' ').includes(op)) return false;
    return !dataset.liveId || dataset.liveId === id;
  }

  document.addEventListener('click', (event) => {
    if (event.target.closest('[data-pause]')) setTimeout(schedule);
  });

  // What was fetched while there is no socket is what the page shows from then on.
  document.addEventListener('htmx:after:request', (event) => {
    const {sourceElement, response} = event.detail.ctx;
    if (!isOpen() && response?.status < 300 && sourceElement?.matches('[data-live]')) {
      shownAt = new Date();
      if (state) show(state);
    }
  });

  // ── time passes ──────────────────────────────────────────────────────────
  let tickedAt = Date.now(), polledAt = 0;

  function wake() {
    now();
    if (isOpen()) ask();
    else reopen();
  }

  function tick() {
    const gap = Date.now() - tickedAt;
    tickedAt = Date.now();
    if (ended) return;
    if (gap > ASLEEP && !document.hidden) wake();
    if (state === 'reconnecting' || state === 'offline') show(state);
    if (isOpen() && Date.now() - heardAt > PING) ask();
    if (state === 'offline' && !document.hidden && Date.now() - polledAt >= POLL) {
      polledAt = Date.now();
      poll();
    }
  }

  document.addEventListener('DOMContentLoaded', () => {
    if (!line()) return;
    show('connecting');
    waitForOpening();
    setInterval(tick, 1000);

    let hiddenAt = 0;
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) hiddenAt = Date.now();
      else if (!ended && Date.now() - hiddenAt > ASLEEP) wake();
      tickedAt = Date.now();
    });
    window.addEventListener('pageshow', (event) => {
      if (!event.persisted) return;
      // hx-ws hung up when the page was left.
      ended = false;
      connection = null;
      show('connecting');
      now();
      reopen();
    });
    window.addEventListener('online', () => { if (!isOpen()) reopen(); });
    window.addEventListener('offline', () => { if (!ended) show('offline'); });
  });
})();
