// The difference of two texts by lines: the longest common subsequence between their common beginning and end, within a bound.

import { h } from './dom.js';

// Cells of the table; beyond it the middle is shown as replaced.
const CELLS = 4_000_000;
const CONTEXT = 3;
const SHOWN = 4000;

// Lines with their signs, as `shown` draws the texts, which keeps the number of lines.
export function compare(before, after, shown = (text) => text) {
  const [a, b] = [before.split('\n'), after.split('\n')];
  const [drawnA, drawnB] = [shown(before).split('\n'), shown(after).split('\n')];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const out = [];
  const put = (sign, lines, from, to) => {
    for (let at = from; at < to; at += 1) out.push([sign, lines[at]]);
  };
  put(' ', drawnA, 0, start);
  if (x.length * y.length > CELLS) {
    put('-', drawnA, start, start + x.length);
    put('+', drawnB, start, start + y.length);
  } else {
    const width = y.length + 1;
    const lengths = new Uint32Array((x.length + 1) * width);
    for (let i = x.length - 1; i >= 0; i -= 1) {
      for (let j = y.length - 1; j >= 0; j -= 1) {
        lengths[i * width + j] = x[i] === y[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
      }
    }
    let [i, j] = [0, 0];
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) {
        out.push([' ', drawnA[start + i]]);
        i += 1;
        j += 1;
      } else if (i < x.length && (j === y.length || lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) out.push(['-', drawnA[start + i++]]);
      else out.push(['+', drawnB[start + j++]]);
    }
  }
  put(' ', drawnA, a.length - end, a.length);
  return out;
}

const CLASSES = { '+': 'add', '-': 'del', ' ': '' };

export function showDifference(before, after, shown) {
  const all = compare(before, after, shown);
  const near = new Uint8Array(all.length);
  all.forEach(([sign], at) => {
    if (sign !== ' ') near.fill(1, Math.max(0, at - CONTEXT), at + CONTEXT + 1);
  });
  const added = all.filter(([sign]) => sign === '+').length;
  const removed = all.filter(([sign]) => sign === '-').length;
  const lines = [];
  let hidden = 0;
  all.forEach(([sign, line], at) => {
    if (lines.length >= SHOWN) return;
    if (!near[at]) {
      hidden += 1;
      return;
    }
    if (hidden) lines.push(h('div', { class: 'gap' }, `… ${hidden} unchanged`));
    hidden = 0;
    lines.push(h('div', { class: CLASSES[sign] }, `${sign} ${line}`));
  });
  if (hidden && lines.length) lines.push(h('div', { class: 'gap' }, lines.length >= SHOWN ? '… more' : `… ${hidden} unchanged`));
  return { added, removed, view: h('div', { class: 'diff code', tabindex: '0', role: 'region', 'aria-label': 'Changes' }, lines) };
}
