// Colours YAML as the server prints it, a line at a time, and takes managed fields out of it. It does not parse: the server does.

import { h } from './dom.js';

const LINES = 5000;
const WIDEST = 2000;
const KEY = /^(\s*(?:- )*)((?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#'"[\]{}&*!|>%@`-][^#]*?|-[^\s#][^#]*?))(:)(?=\s|$)(.*)$/;
const BLOCK = /^\s*[|>][+-]?\d?[+-]?\s*$/;

const indentOf = (line) => line.length - line.trimStart().length;

function value(text) {
  const bare = text.trim();
  if (!bare) return text;
  if (/^["']/.test(bare)) return h('span', { class: 's' }, text);
  if (/^[-+]?(\d[\d_]*)(\.\d+)?([eE][-+]?\d+)?$/.test(bare)) return h('span', { class: 'n' }, text);
  if (/^(true|false|null|~|\{\}|\[\])$/.test(bare)) return h('span', { class: 'w' }, text);
  if (bare.startsWith('#')) return h('span', { class: 'c' }, text);
  return h('span', { class: 's' }, text);
}

export function highlight(text) {
  const out = document.createDocumentFragment();
  const all = text.split('\n');
  let block = -1;
  all.forEach((line, index) => {
    const end = index + 1 < all.length ? '\n' : '';
    if (index >= LINES || line.length > WIDEST) {
      out.append(line + end);
      return;
    }
    if (block >= 0 && (!line.trim() || indentOf(line) > block)) {
      out.append(h('span', { class: 's' }, line), end);
      return;
    }
    block = -1;
    const found = KEY.exec(line);
    if (line.trimStart().startsWith('#')) out.append(h('span', { class: 'c' }, line), end);
    else if (found) {
      const [, lead, key, colon, rest] = found;
      if (BLOCK.test(rest)) block = indentOf(line);
      out.append(lead, h('span', { class: 'k' }, key), colon, value(rest), end);
    } else {
      const [lead] = /^\s*(?:- )*/.exec(line);
      out.append(lead, value(line.slice(lead.length)), end);
    }
  });
  return out;
}

// The text without `metadata.managedFields`, which the server keeps when it is left out.
export function withoutManagedFields(text) {
  const kept = [];
  let inMetadata = false;
  let inside = false;
  for (const line of text.split('\n')) {
    const indent = indentOf(line);
    if (line.trim() && indent === 0) [inMetadata, inside] = [line === 'metadata:', false];
    else if (inMetadata && line === '  managedFields:') {
      inside = true;
      continue;
    } else if (inside && !(indent > 2 || line.startsWith('  - '))) inside = false;
    if (!inside) kept.push(line);
  }
  return kept.join('\n');
}
