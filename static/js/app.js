// What the server and htmx cannot do: shortcuts, dialogs, announcements, focus.
// Everything is delegated from the document, so swapped fragments need no set-up.
//
// For other scripts (events on document):
//   sayso:announce {text}        say it politely, at most once per 5 s, the newest wins
//   sayso:problem {text, reload} say at once that something was not done, and whether to load
//                                the page again
// The live socket is in live.js.

const own = document.getElementById('app-js').dataset;
const {eventToHotkeyString, normalizeSequence} = await import(own.hotkey);
import(own.relativeTime);

const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

// ── announcements ──────────────────────────────────────────────────────────
let saidAt = -5000, sayLater = 0;
export function announce(text) {
  clearTimeout(sayLater);
  sayLater = setTimeout(() => {
    $('#announcer').textContent = text;
    saidAt = performance.now();
  }, Math.max(0, 5000 - (performance.now() - saidAt)));
}
document.addEventListener('sayso:announce', (event) => announce(event.detail.text));

// ── shortcuts: data-hotkey on real buttons, links and fields ───────────────
const keysOn = () => localStorage.getItem('keys') !== 'off';
const typing = (element) => element.isContentEditable
  || element.matches('select, textarea, input:not([type=checkbox], [type=radio], [type=submit], [type=button])');
let path = [], forget = 0;

document.addEventListener('keydown', (event) => {
  if (event.defaultPrevented || !(event.target instanceof HTMLElement)) return;
  if (['Shift', 'Control', 'Alt', 'Meta'].includes(event.key)) return;
  const field = typing(event.target);
  const modified = event.ctrlKey || event.metaKey;
  if ((field && !modified) || (!keysOn() && !modified)) return;
  const key = eventToHotkeyString(event);
  const within = $('dialog:modal') ?? document;
  const find = (sequence) => $$('[data-hotkey]', within).find((element) => !element.disabled
    && (!field || element.dataset.hotkeyScope === event.target.id)
    && element.dataset.hotkey.split(',').some((one) => normalizeSequence(one) === sequence));
  const found = find([...path, key].join(' ')) ?? find(key);
  clearTimeout(forget);
  path = found ? [] : [key];
  forget = setTimeout(() => { path = []; }, 1500);
  if (!found) return;
  event.preventDefault();
  if (typing(found)) found.focus(); else found.click();
});
$$('#use-keys').forEach((box) => {
  box.checked = keysOn();
  box.addEventListener('change', () => localStorage.setItem('keys', box.checked ? 'on' : 'off'));
});

// ── clicks: dialogs, copying, moving through the list ──────────────────────
const links = () => $$('.row-link');
function step(by) {
  const all = links();
  const here = all.includes(document.activeElement)
    ? all.indexOf(document.activeElement)
    : all.findIndex((link) => link.hasAttribute('aria-current'));
  all[Math.min(all.length - 1, Math.max(0, here + by))]?.focus();
}

document.addEventListener('click', (event) => {
  const at = (selector) => event.target.closest(selector);
  let element;
  if ((element = at('[data-dialog]'))) {
    const dialog = $(element.dataset.dialog);
    if (dialog && !dialog.open) {
      event.preventDefault();
      dialog.showModal();
    }
  } else if ((element = at('[data-close]'))) {
    element.closest('dialog').close();
  } else if ((element = at('[data-copy]'))) {
    navigator.clipboard.writeText($(element.dataset.copy)?.textContent ?? location.href)
      .then(() => announce(own.copied), () => {});
  } else if ((element = at('[data-step]'))) {
    step(Number(element.dataset.step));
  } else if (at('[data-open]')) {
    const row = document.activeElement.closest('.row-link:not([aria-current])');
    if (row) row.click(); else $('#detail-title')?.focus();
  } else if ((element = at('[data-pause]'))) {
    element.setAttribute('aria-pressed', String(element.getAttribute('aria-pressed') !== 'true'));
  } else if ((element = at('[data-focus]'))) {
    $(element.dataset.focus)?.focus();
  }
});

// ── swaps ──────────────────────────────────────────────────────────────────
const narrow = matchMedia('(max-width: 767.98px)');
const plainTitle = () => document.title.replace(/^\(\d+\) /, '');
let note = '', opened = '', said = '';

document.addEventListener('htmx:config:request', (event) => {
  const {sourceElement} = event.detail.ctx;
  if (!sourceElement.matches('.row-link')) return;
  if (narrow.matches) {
    // One column: a request is a page of its own.
    event.preventDefault();
    location.assign(sourceElement.href);
    return;
  }
  mark(sourceElement);
});
function mark(current) {
  links().forEach((link) => {
    if (link === current) link.setAttribute('aria-current', 'true');
    else link.removeAttribute('aria-current');
  });
}
document.addEventListener('htmx:before:swap', ({detail: {ctx, tasks}}) => {
  note = '';
  opened = $('#detail [name=open]')?.value ?? '';
  if (!ctx.sourceElement?.matches('[data-live]')) return;
  // News of a request that is no longer the open one, or that is being decided here and now,
  // must not cover what the reader sees.
  const asked = new URL(ctx.request.action, location.href).searchParams.get('open') ?? '';
  if (asked !== opened || $('#detail form.htmx-request')) {
    tasks.splice(0, Infinity, ...tasks.filter(({target}) => target?.id !== 'detail'));
  } else note = $('#detail [data-note]')?.value ?? kept();
});
// What stays of a note once the request was decided; the news that follow draw it again.
const kept = () => $('#kept')?.hidden === false ? $('#kept-text').textContent : '';
document.addEventListener('htmx:after:swap', () => settle());
function settle() {
  // The request was decided while somebody typed: what they typed stays on the page.
  const place = $('#kept-text');
  if (note && place && !$('#detail [data-note]') && !place.textContent
      && $('#detail [name=open]')?.value === opened) {
    place.textContent = note;
    $('#kept').hidden = false;
  }
  note = '';
  // Times are shown in the reader's zone, and a time they type is one of that zone.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  $$('[data-zone]').forEach((element) => {
    if (element.matches('input')) element.value = zone;
    else element.textContent = zone;
  });
  $$('.toast-x[data-seconds]').forEach((toast) => {
    if (toast.dataset.timed) return;
    toast.dataset.timed = 'true';
    setTimeout(() => toast.remove(), Number(toast.dataset.seconds) * 1000);
  });
  const arrivals = $('#arrivals');
  if (!arrivals) return;
  mark($(`#row-${$('#detail [name=open]')?.value ?? 'none'} .row-link`));
  const count = Number(arrivals.dataset.n);
  document.title = (count ? `(${count}) ` : '') + plainTitle();
  if (arrivals.dataset.announce && arrivals.dataset.announce !== said) announce(arrivals.dataset.announce);
  said = arrivals.dataset.announce ?? '';
}
settle();

// ── requests that went wrong ───────────────────────────────────────────────
function problem(text, reload = false) {
  const note = $('#problem-words').content.firstElementChild.cloneNode(true);
  $('[data-text]', note).textContent = text;
  $('[data-reload]', note).hidden = !reload;
  $('#problem').replaceChildren(note);
}
document.addEventListener('sayso:problem', ({detail}) => problem(detail.text, detail.reload));
// What was not sent is told until something can be sent again.
function notSent(unsent) {
  problem(own.notSent);
  $('#problem > *').dataset.unsent = unsent;
}
document.addEventListener('sayso:connection', ({detail}) => {
  const note = detail.state === 'live' && $('#problem [data-unsent=unreached]');
  if (!note) return;
  note.classList.replace('note-risk', 'note-info');
  $('[data-text]', note).textContent = own.back;
});
document.addEventListener('htmx:before:response', (event) => {
  // A session that ended answers with the sign-in page, which belongs in no card. Nobody is
  // led away from what they typed: only who wanted to go somewhere goes to sign in.
  const {response: {raw}, request, sourceElement} = event.detail.ctx;
  if (!raw.redirected || new URL(raw.url).pathname !== own.login) return;
  event.preventDefault();
  if (sourceElement.matches('[data-live]')) return;
  if (request.method === 'GET') {
    const next = sourceElement.href ?? location.href;
    location.assign(`${own.login}?next=${encodeURIComponent(next.replace(location.origin, ''))}`);
  } else problem(own.signedOut);
});
document.addEventListener('htmx:after:request', (event) => {
  const {request, response} = event.detail.ctx;
  if (response.status >= 500) notSent('failed');
  else if (request.method !== 'GET') $('#problem [data-unsent]')?.remove();
});
document.addEventListener('htmx:error', (event) => {
  if (event.detail.ctx && event.detail.ctx.request?.method !== 'GET') notSent('unreached');
});
document.addEventListener('click', (event) => {
  if (event.target.closest('#problem [data-dismiss]')) $('#problem').replaceChildren();
});
