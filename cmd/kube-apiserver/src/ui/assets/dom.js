// Builders of elements. Text from the server only ever becomes text nodes and attribute values.

const SVG = 'http://www.w3.org/2000/svg';
// Letters that turn the direction of a text, or cannot be seen: shown as their code points.
const UNSEEN = /[\u061C\u200B-\u200F\u202A-\u202E\u2066-\u2069]/g;
const codeOf = (letter) => `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
// Attributes that are read by people.
const SPOKEN = new Set(['title', 'aria-label', 'placeholder']);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : SPOKEN.has(name) ? value.replace(UNSEEN, codeOf) : value);
  }
  add(element, children);
  return element;
}

function addText(element, text) {
  let end = 0;
  for (const { 0: letter, index } of text.matchAll(UNSEEN)) {
    const mark = document.createElement('span');
    mark.className = 'mark';
    mark.append(codeOf(letter));
    element.append(text.slice(end, index), mark);
    end = index + 1;
  }
  element.append(text.slice(end));
}

export function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== undefined && child !== null && child !== false) addText(element, String(child));
  }
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Does something to an element after which a link in it that had the focus has it again.
export function keepingFocus(element, work) {
  const active = element.contains(document.activeElement) && document.activeElement.closest('a[href]');
  const isCurrent = Boolean(active && active.closest('tr.current'));
  work();
  if (!active || active.isConnected) return;
  const again = [...element.querySelectorAll('a[href]')].find((link) => link.getAttribute('href') === active.getAttribute('href'));
  again?.focus({ preventScroll: true });
  if (isCurrent) again?.closest('tr')?.classList.add('current');
}

export function replace(element, ...children) {
  keepingFocus(element, () => {
    element.replaceChildren();
    add(element, children);
  });
}

let ids = 0;
export const freshId = (word) => `${word}-${++ids}`;

export function panel(title, note, ...content) {
  const id = freshId('panel');
  return h('section', { class: 'panel', 'aria-labelledby': id },
    h('header', {}, h('h2', { id }, title), note && h('p', {}, note)), content);
}

export const body = (...content) => h('div', { class: 'body' }, content);
export const badge = (text, kind = '') => h('span', { class: `badge ${kind}` }, text);
export const empty = (text) => h('p', { class: 'empty' }, text);

// A statement beside the content: kind is bad, warn, good or nothing.
export const note = (kind, ...content) => h('div', { class: `note-box ${kind}`, role: kind === 'bad' ? 'alert' : undefined }, content);

// What the server said no to, in its words.
export function refusal(error) {
  const word = error.status === 403 ? 'Not permitted: ' : error.status === 404 ? 'Not there: ' : '';
  const causes = error.causes ?? [];
  return note(error.status === 403 || error.status === 404 ? '' : 'bad', word + error.message,
    (causes.length > 1 || causes.some((cause) => !error.message.includes(cause))) && h('ul', {}, causes.slice(0, 50).map((cause) => h('li', {}, cause))));
}

export function stats(items) {
  return h('dl', { class: 'stats' }, items.filter(Boolean).map(({ label, value, note: small, more }) =>
    h('div', {}, h('dt', {}, label), h('dd', {}, h('div', { class: 'value' }, value), small && h('div', { class: 'note' }, small), more))));
}

// columns: {title, number, wrap, head}; rows: arrays of cells, each a text, a node or nothing.
export function table(caption, columns, rows, nothing = 'None.') {
  if (rows.length === 0) return body(empty(nothing));
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${caption}, table` },
    h('table', {}, h('caption', { class: 'unseen' }, caption),
      h('thead', {}, h('tr', {}, columns.map((c) => h('th', { scope: 'col', class: c.number && 'number' }, c.title)))),
      h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((cell, at) => columns[at].head
        ? h('th', { scope: 'row' }, cell)
        : h('td', { class: columns[at].number ? 'number' : columns[at].wrap ? 'wrap' : undefined }, cell)))))));
}

// A line of values over time, oldest first.
export function chart(values, label) {
  if (values.length < 2) return h('p', { class: 'chart collecting' }, 'collecting');
  const width = 160, height = 36;
  const top = Math.max(...values, 1e-9);
  const at = (value, index) => [(index * width) / Math.max(values.length - 1, 1), height - 2 - (value / top) * (height - 6)];
  const points = values.map((value, index) => at(value, index).map((n) => n.toFixed(1)).join(',')).join(' ');
  return svg('svg', { class: 'chart', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    svg('polygon', { points: `0,${height} ${points} ${width},${height}`, fill: 'currentColor', 'fill-opacity': '.12' }),
    svg('polyline', { points, fill: 'none', stroke: 'currentColor', 'stroke-width': '1.5', 'vector-effect': 'non-scaling-stroke' }));
}

export function announce(text) {
  document.getElementById('announce').textContent = text;
}

export function heading(title, { crumbs, sub, actions } = {}) {
  return h('div', { class: 'head' },
    h('div', { class: 'grow' }, crumbs && h('div', { class: 'crumbs' }, crumbs), h('h1', { tabindex: '-1' }, title), sub && h('p', { class: 'sub' }, sub)),
    actions && h('div', { class: 'actions' }, actions));
}

// Opens a dialog; resolves when it is closed, with its return value.
export function ask(dialog) {
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue), { once: true });
    dialog.returnValue = '';
    dialog.showModal();
  });
}
