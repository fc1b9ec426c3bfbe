// One conversation: fetch it anew when something happened, lay live text over it, and leave
// alone what somebody is typing. The server draws everything; without this script the page
// shows the same after a reload.

const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

const box = $('#thread'), transcript = $('#transcript'), message = $('#message');
const shown = () => $('#entries')?.dataset ?? {};

// ── fetching anew ──────────────────────────────────────────────────────────
// At most one request at a time and three a second. Whatever was asked for before this page
// posted something may be older than the answer of the post, so it is thrown away.
const PAUSE = 350;
let asking = null, again = false, due = 0, askedAt = -PAUSE;

function refresh() {
  if (!transcript.dataset.url || due) return;
  if (asking) { again = true; return; }
  due = setTimeout(fetchAnew, Math.max(0, askedAt + PAUSE - performance.now()));
}

async function fetchAnew() {
  due = 0;
  askedAt = performance.now();
  const abort = asking = new AbortController();
  try {
    const response = await fetch(transcript.dataset.url, {headers: {'HX-Request': 'true'}, signal: abort.signal});
    // Signed out, or gone: the line in the corner says so, and what was typed stays.
    const text = response.ok && !response.redirected ? await response.text() : '';
    if (text && asking === abort) await htmx.swap({sourceElement: transcript, target: transcript, swap: 'innerMorph', text});
  } catch (error) {
    // Offline: the next hello of the socket, or the slow polling, asks again.
    if (error.name !== 'AbortError' && !(error instanceof TypeError)) throw error;
  } finally {
    if (asking === abort) asking = null;
    if (again && !asking) { again = false; refresh(); }
  }
}

function forgetOlder() {
  if (!asking) return;
  asking.abort();
  asking = null;
  again = true;
}

// ── what happens elsewhere ─────────────────────────────────────────────────
document.addEventListener('sayso:live', refresh);
document.addEventListener('sayso:delta', ({detail}) => hear(detail));

// ── live text ──────────────────────────────────────────────────────────────
// For each message that is being written: what was heard of it without a gap, and where in
// the message that begins. Only what goes beyond the stored text is laid over the page.
let heard = new Map(), heardRun = '';

function hear({id, attempt, message: name, size, text}) {
  const now = shown();
  if (id !== now.run || attempt < now.attempt) return;
  if (id !== heardRun) { heard = new Map(); heardRun = id; }
  const from = size - text.length;
  let part = heard.get(name);
  if (!part || part.attempt !== attempt || from > part.from + part.text.length) {
    part = {attempt, from, text: ''};
    heard.set(name, part);
  }
  part.text += text.slice(part.from + part.text.length - from);
  layText();
  keepPlace();
}

function layText() {
  const {run, attempt} = shown();
  for (const [name, part] of heard) {
    const element = textElement(name), stored = Number(element?.dataset.size ?? 0);
    const ahead = part.attempt > attempt;
    if (run !== heardRun || part.attempt < attempt || (element && !ahead && !('streaming' in element.dataset))) {
      heard.delete(name);
      continue;
    }
    if (ahead || part.from > stored) refresh();
    // An attempt the page has not heard of is no obstacle to a message that is new.
    if (part.from <= stored && !(ahead && element) && part.from + part.text.length > stored) {
      write(element ?? newText(name), part.text.slice(stored - part.from));
    }
  }
}

const textElement = (name) => $$('.txt').find((one) => one.dataset.message === name);

function write(element, words) {
  let tail = $('.tail', element);
  if (!tail) {
    tail = document.createElement('span');
    tail.className = 'tail';
    // Inside the last paragraph, so that its line goes on.
    const last = $('.md', element)?.lastElementChild;
    (last?.matches('p') ? last : element).append(tail);
  }
  tail.textContent = words;
}

function newText(name) {
  const item = $('#new-text').content.firstElementChild.cloneNode(true);
  $('.txt', item).dataset.message = name;
  $('#entries').insertBefore(item, $('#entries > .notice:has(.is-passing), #entries > .is-queued'));
  return $('.txt', item);
}

// ── the place of the reader ────────────────────────────────────────────────
// The newest stays in view for those who are at the end, and only for them.
let following = Boolean(transcript.dataset.url);
const toEnd = () => { box.scrollTop = box.scrollHeight; };

function keepPlace() {
  if (following) toEnd();
  showWay();
}
function showWay() { $('#to-end').hidden = following || !transcript.dataset.url; }

box.addEventListener('scroll', () => {
  following = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  showWay();
}, {passive: true});
$('#to-end').addEventListener('click', () => { toEnd(); box.focus({preventScroll: true}); });
new ResizeObserver(keepPlace).observe(box);

// ── swaps ──────────────────────────────────────────────────────────────────
const notes = new Map();

// A refusal stays until it is answered, and so does a note that came too late. htmx asks
// extensions, not listeners, before it morphs a node; false leaves the node as it is.
htmx.registerExtension('cards', {
  htmx_before_morph_node(card, {newNode}) {
    if (!(card instanceof Element) || !card.matches('.icard')) return true;
    if (!card.matches('.icard-open') || newNode.matches('.icard-open')) return !$('[role=alert]', card);
    const typed = $('[data-note]', card)?.value.trim();
    if (typed && !$('form.htmx-request', card)) notes.set(card.id, typed);
    return true;
  },
});

document.addEventListener('htmx:after:swap', () => {
  for (const [id, text] of notes) {
    const note = $('#kept-note').content.firstElementChild.cloneNode(true);
    $('[data-text]', note).textContent = text;
    document.getElementById(id)?.append(note);
  }
  notes.clear();
  layText();
  keepPlace();
  listen();
});

// The socket hears one run. When the conversation has gone on to another, it moves there;
// its hello fetches whatever happened in between.
function listen() {
  const {run} = shown();
  const path = run ? `/ws/runs/${run}/` : '/ws/';
  const live = $('#live');
  if (live.getAttribute('hx-ws:connect') === path) return;
  const moved = live.cloneNode();
  moved.setAttribute('hx-ws:connect', path);
  htmx.swap({sourceElement: live, target: live, swap: 'outerHTML', text: moved.outerHTML});
}

// ── sending ────────────────────────────────────────────────────────────────
let sent = '';
const composer = $('#composer');
const block = (whether) => [...composer?.elements ?? []].forEach((field) => { if (field.matches('button')) field.disabled = whether; });

composer?.addEventListener('submit', () => {
  sent = message.value;
  // Without htmx the whole page goes; a second press must not send a second time.
  if (!composer.hasAttribute('hx-post')) setTimeout(block, 0, true);
});
addEventListener('pageshow', () => block(false));

// As in every chat, unless the keys are on the screen: there Enter begins a line.
const keyboard = matchMedia('(hover: hover) and (pointer: fine)');
message?.addEventListener('keydown', (event) => {
  const plain = !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey;
  if (event.key !== 'Enter' || !plain || event.isComposing || !keyboard.matches) return;
  event.preventDefault();
  if (message.value.trim()) $('button', composer).click();
});

document.addEventListener('htmx:after:request', (event) => {
  const {sourceElement, request, response} = event.detail.ctx;
  if (request.method === 'GET') return;
  forgetOlder();
  refresh();
  const done = response && response.status < 300;
  if (sourceElement === composer) {
    if (done) {
      // What was typed meanwhile stays.
      if (message.value.startsWith(sent)) message.value = message.value.slice(sent.length).trimStart();
      $('#refusal').replaceChildren();
      following = true;
      keepPlace();
    }
    message.focus();
  }
  if (sourceElement.closest('#cancel-run')) $('#cancel-run').close();
});
