// Edits a text: a dry run shows what the server would make of it, then it is written.

import { warnings } from './api.js';
import { announce, freshId, h, note, refusal, replace } from './dom.js';
import { showDifference } from './diff.js';
import { hold, mayLeave, release } from './guard.js';
import { masked } from './secret.js';
import { highlight } from './yaml.js';

// Texts beyond it are edited without colours.
const COLOURED = 50_000;

// A text area over the same text in colours.
function colouredArea(initial) {
  const area = h('textarea', { class: 'code', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', 'aria-label': 'YAML of the object' });
  area.value = initial;
  const behind = h('pre', { class: 'yaml code', 'aria-hidden': 'true' });
  const view = h('div', { class: 'editor' }, behind, area);
  const paint = () => {
    const plain = area.value.length > COLOURED;
    view.classList.toggle('plain', plain);
    // The last line needs something in it to have a height. Marks would move the letters away from those of the text area.
    if (plain) replace(behind);
    else replace(behind, highlight(area.value, { marks: false }), '\n ');
  };
  area.addEventListener('input', paint);
  paint();
  return { view, area, paint };
}

// The changes; those of a Secret without its values until they are asked for.
function changesOf(before, after, isSecret) {
  const plain = showDifference(before, after);
  if (!isSecret) return plain;
  const place = h('div', {}, showDifference(before, after, masked).view);
  const show = h('button', { type: 'button', onclick: () => { show.remove(); replace(place, plain.view); } }, 'Show values');
  return { ...plain, view: h('div', {}, h('div', { class: 'body' }, show), place) };
}

// `dryRun(text)` gives the response and what the server would store as YAML; `write(text)` writes and gives the response. `before()` is what
// is there now, `fresh()` the text to begin with again after a conflict, if there can be one. `done` and `cancel` end the edit.
export function edit({ place, initial, before, fresh, dryRun, write, done, cancel, isSecret = false }) {
  const { view, area, paint } = colouredArea(initial);
  const result = h('div');
  const kept = h('div');
  const review = h('button', { class: 'primary', type: 'button' }, 'Review changes');
  const leave = h('button', { type: 'button', 'data-key': 'back' }, 'Cancel');
  const steps = h('div', { class: 'actions' }, review, leave);
  const id = freshId('edit');
  const warn = (response) => warnings(response).map((warning) => note('warn', warning));
  const busy = (is) => steps.querySelectorAll('button').forEach((button) => { button.disabled = is; });
  let first = initial;
  let mine;
  const isUnsaved = () => area.value !== first || mine !== undefined;
  hold(isUnsaved);

  const editing = () => {
    view.hidden = false;
    replace(steps, review, leave);
    busy(false);
    replace(result);
    area.focus();
  };
  const takeOver = async () => {
    try {
      const now = await fresh();
      mine = area.value;
      first = now;
      area.value = now;
      paint();
      replace(result, note('', 'This is what is there now.'));
      replace(kept, h('details', { open: true }, h('summary', {}, 'Your text'),
        h('textarea', { class: 'code kept', readonly: true, rows: '12', 'aria-label': 'Your text' }, document.createTextNode(mine))));
      area.focus();
    } catch (error) {
      replace(result, refusal(error));
    }
  };
  const refused = (error) => {
    replace(result, refusal(error), error.status === 409 && fresh
      && h('div', { class: 'actions' }, h('button', { type: 'button', onclick: takeOver }, 'Take what is there now')));
  };
  const finish = async () => {
    busy(true);
    try {
      const response = await write(area.value);
      release();
      announce('Written');
      await done(response, warn(response));
    } catch (error) {
      editing();
      refused(error);
    }
    busy(false);
  };
  review.addEventListener('click', async () => {
    busy(true);
    replace(result);
    try {
      const { response, after } = await dryRun(area.value);
      const { added, removed, view: changes } = changesOf(await before(), after, isSecret);
      if (added + removed === 0) {
        replace(result, warn(response), note('', 'The server would change nothing.'));
      } else {
        view.hidden = true;
        const confirmed = h('button', { class: 'primary', type: 'button', onclick: finish }, 'Write');
        replace(steps, confirmed, h('button', { type: 'button', onclick: editing, 'data-key': 'back' }, 'Edit again'));
        replace(result, warn(response), note('', `The server takes it: ${added} lines added, ${removed} removed. Nothing is written yet.`), changes);
        confirmed.focus();
      }
    } catch (error) {
      refused(error);
    }
    busy(false);
  });
  leave.addEventListener('click', async () => {
    if (!(await mayLeave())) return;
    release();
    await cancel();
  });
  replace(place, h('section', { class: 'panel', 'aria-labelledby': id }, h('header', {}, h('h2', { id }, 'Edit'), h('p', {}, 'checked by a dry run on the server before anything is written')),
    h('div', { class: 'body' }, result, steps), view, kept));
  area.focus();
  area.setSelectionRange(0, 0);
}
