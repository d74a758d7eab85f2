// The keyboard: moving through rows, to sections, and help. Keys without modifiers, and none while something is typed.

import { h, replace } from './dom.js';
import { unsaved } from './guard.js';

const SHORTCUTS = [
  ['/', 'Filter'], ['j, k', 'Next and previous row'], ['Enter', 'Open the row'], ['Esc', 'Back'],
  ['e', 'Edit the object'], ['g then o, b, a, r, d, s, c, e', 'Overview, objects, APIs, requests, admission, storage, certificates, events'],
  ['t', 'Light or dark'], ['?', 'This help'],
];
const SECTIONS = { o: 'overview', b: 'objects', a: 'apis', r: 'requests', d: 'admission', s: 'storage', c: 'certificates', e: 'events' };

const rows = () => [...document.querySelectorAll('main tbody tr')].filter((row) => !row.hidden && row.querySelector('a'));

function move(step) {
  const all = rows();
  if (!all.length) return;
  for (const row of document.querySelectorAll('tr.current[hidden]')) row.classList.remove('current');
  const at = all.findIndex((row) => row.classList.contains('current'));
  const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  all[at]?.classList.remove('current');
  next.classList.add('current');
  next.querySelector('a').focus();
  next.scrollIntoView({ block: 'nearest' });
}

export function showHelp() {
  const dialog = document.getElementById('shortcuts');
  replace(dialog, h('h2', { id: 'shortcuts-title' }, 'Keyboard shortcuts'),
    h('dl', { class: 'keys' }, SHORTCUTS.map(([keys, what]) => [h('dt', {}, h('kbd', {}, keys)), h('dd', {}, what)])),
    h('form', { method: 'dialog', class: 'actions' }, h('button', { autofocus: true }, 'Close')));
  if (!dialog.open) dialog.showModal();
}

export function listenToKeys({ toggleTheme }) {
  let prefix = 0;
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    const typing = event.target.closest?.('input, textarea, select');
    if (event.key === 'Escape') {
      if (typing) return typing.blur();
      // The question that this may open is not to be closed by the same key.
      event.preventDefault();
      // The innermost way back; one that leaves an edit is not taken by a key.
      const back = [...document.querySelectorAll('[data-key="back"]')].at(-1);
      if (!unsaved() || back?.matches('button')) back?.click();
      return;
    }
    if (typing) return;
    if (Date.now() - prefix < 1500 && SECTIONS[event.key]) {
      prefix = 0;
      location.hash = `#/${SECTIONS[event.key]}`;
    } else if (event.key === 'g') {
      prefix = Date.now();
      return;
    } else if (event.key === '/') {
      const filter = document.querySelector('[data-key="filter"]');
      filter?.focus();
      filter?.select();
    } else if (event.key === 'j') move(1);
    else if (event.key === 'k') move(-1);
    else if (event.key === 'e') document.querySelector('[data-key="edit"]:not(:disabled)')?.click();
    else if (event.key === 't') toggleTheme();
    else if (event.key === '?') showHelp();
    else return;
    event.preventDefault();
  });
}
