// What would be lost when the page is left: the text of an edit that is not written yet.

import { ask, h } from './dom.js';

let held = () => false;

// `isUnsaved()` says whether the edit has anything to lose.
export function hold(isUnsaved) {
  held = isUnsaved;
}

export function release() {
  held = () => false;
}

export const unsaved = () => held();

// Asks with a dialog: resolves to whether its second button was pressed.
export async function confirm(title, content, no, yes, more = {}) {
  const dialog = h('dialog', { 'aria-labelledby': 'confirm-title' }, h('h2', { id: 'confirm-title' }, title), content,
    h('form', { method: 'dialog', class: 'actions' }, h('button', { value: 'no', autofocus: true }, no), h('button', { value: 'yes', ...more }, yes)));
  document.body.append(dialog);
  const answer = await ask(dialog);
  dialog.remove();
  return answer === 'yes';
}

// Whether what is shown may be replaced; asks where an edit would be lost.
export async function mayLeave() {
  if (!unsaved()) return true;
  const leave = await confirm('Discard the edit?', h('p', {}, 'It has not been written.'), 'Keep editing', 'Discard', { class: 'danger' });
  if (leave) release();
  return leave;
}

addEventListener('beforeunload', (event) => {
  if (unsaved()) event.preventDefault();
});
