// Colours YAML as the server prints it, a line at a time, and takes managed fields out of it. It does not parse: the server does.

import { add, h } from './dom.js';

const LINES = 5000;
const WIDEST = 2000;
const KEY = /^(\s*(?:- )*)((?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#'"[\]{}&*!|>%@`-][^#]*?|-[^\s#][^#]*?))(:)(?=\s|$)(.*)$/;
const BLOCK = /^\s*[|>][+-]?\d?[+-]?\s*$/;

const indentOf = (line) => line.length - line.trimStart().length;

function value(text, plain) {
  const bare = text.trim();
  text = plain(text);
  if (!bare) return text;
  if (/^["']/.test(bare)) return h('span', { class: 's' }, text);
  if (/^[-+]?(\d[\d_]*)(\.\d+)?([eE][-+]?\d+)?$/.test(bare)) return h('span', { class: 'n' }, text);
  if (/^(true|false|null|~|\{\}|\[\])$/.test(bare)) return h('span', { class: 'w' }, text);
  if (bare.startsWith('#')) return h('span', { class: 'c' }, text);
  return h('span', { class: 's' }, text);
}

// `marks` shows letters that turn the direction of a text, and such that cannot be seen.
export function highlight(text, { marks = true } = {}) {
  const plain = marks ? (part) => part : (part) => document.createTextNode(part);
  const put = (...parts) => add(out, parts);
  const out = document.createDocumentFragment();
  const all = text.split('\n');
  let block = -1;
  all.forEach((line, index) => {
    const end = index + 1 < all.length ? '\n' : '';
    if (index >= LINES || line.length > WIDEST) {
      put(plain(line), end);
      return;
    }
    if (block >= 0 && (!line.trim() || indentOf(line) > block)) {
      put(h('span', { class: 's' }, plain(line)), end);
      return;
    }
    block = -1;
    const found = KEY.exec(line);
    if (line.trimStart().startsWith('#')) put(h('span', { class: 'c' }, plain(line)), end);
    else if (found) {
      const [, lead, key, colon, rest] = found;
      if (BLOCK.test(rest)) block = indentOf(line);
      put(lead, h('span', { class: 'k' }, plain(key)), colon, value(rest, plain), end);
    } else {
      const [lead] = /^\s*(?:- )*/.exec(line);
      put(lead, value(line.slice(lead.length), plain), end);
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

// The value of a simple field of the `metadata` of a text, where it is written as the server writes it: a block of lines.
export function metadataField(text, name) {
  let inMetadata = false;
  let first;
  for (const line of text.split('\n')) {
    const bare = line.trim();
    if (!bare || bare.startsWith('#')) continue;
    const indent = indentOf(line);
    if (indent === 0) inMetadata = /^["']?metadata["']?:\s*(#.*)?$/.test(line);
    else if (inMetadata) {
      first ??= indent;
      const found = indent === first && /^["']?([A-Za-z]+)["']?:\s+(?:"([^"\\]*)"|'([^']*)'|([^\s"'#&*!|>{[][^\s#]*))\s*(?:#.*)?$/.exec(bare);
      if (found && found[1] === name) return found[2] ?? found[3] ?? found[4];
    }
  }
  return undefined;
}
