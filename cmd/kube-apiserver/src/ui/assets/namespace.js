// The namespace that was chosen last, for users who may not read all of them: its name alone, until the tab is closed.

import { h, note } from './dom.js';

const KEPT = 'kube-apiserver.namespace';

export function keepNamespace(name) {
  try {
    if (name) sessionStorage.setItem(KEPT, name);
  } catch {
    // Storage may be turned off.
  }
}

export function keptNamespace() {
  try {
    return sessionStorage.getItem(KEPT) ?? '';
  } catch {
    return '';
  }
}

// What to do where all namespaces are refused: `addressOf(name)` shows one.
export function offerNamespace(addressOf) {
  const name = keptNamespace();
  return note('', 'You may be permitted to read a single namespace: ', name ? h('a', { href: addressOf(name) }, `show ${name}`) : 'name it above', '.');
}
