// The frame of the page: who the user is, which section is shown, health, theme.

import * as api from './api.js';
import { forgetAnswers } from './access.js';
import { announce, ask, h, heading, note, refusal, replace } from './dom.js';
import { mayLeave, release, unsaved } from './guard.js';
import { listenToKeys, showHelp } from './keys.js';
import { forgetMetrics } from './metrics.js';
import { showAdmission } from './admission.js';
import { showApis } from './apis.js';
import { showCertificates } from './certificates.js';
import { showEvents } from './events.js';
import { showKinds, showObjects } from './explorer.js';
import { showNew, showObject } from './object.js';
import { showOverview } from './overview.js';
import { showRequests } from './requests.js';
import { showStorage } from './storage.js';

const HEALTH_MILLISECONDS = 10_000;
const THEME = 'kube-apiserver.theme';
const SECTIONS = [
  ['overview', 'Overview', showOverview],
  ['objects', 'Objects', showKinds],
  ['apis', 'APIs', showApis],
  ['requests', 'Requests', showRequests],
  ['admission', 'Admission', showAdmission],
  ['storage', 'Storage', showStorage],
  ['certificates', 'Certificates', showCertificates],
  ['events', 'Events', showEvents],
];

const element = (id) => document.getElementById(id);
let leaving = new AbortController();
let healthTimer;
// The address of what is shown.
let shownAt = location.hash;
let asking = false;

function preferredTheme() {
  try {
    const kept = localStorage.getItem(THEME);
    if (kept === 'light' || kept === 'dark') return kept;
  } catch {
    // Storage may be turned off.
  }
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

function toggleTheme() {
  const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(THEME, next);
  } catch {
    // It holds until the page is left.
  }
}

function setLive(word) {
  const live = element('live');
  live.dataset.state = word;
  live.textContent = { live: 'Live', retrying: 'Reconnecting', refused: 'Refused', lost: 'Lost' }[word] ?? '';
}

// The parts of the address after #/, and its query.
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  // A browser would make another path of these.
  if (parts.some((part) => part === '.' || part === '..')) return undefined;
  return { parts, query: new URLSearchParams(query ?? '') };
}

function find(asked) {
  if (!asked) return ['', (main) => main.append(heading('Not there'), note('bad', 'The address has a part that is no name.'))];
  const { parts, query } = asked;
  const [section = 'overview', group, version, resource, namespace, name] = parts;
  if (section === 'objects' && resource) {
    const kind = { group: group === '-' ? '' : group, version, resource };
    if (namespace !== undefined && name !== undefined) {
      const object = { ...kind, namespace: namespace === '-' ? '' : namespace, name };
      return [section, (...all) => showObject(...all, object)];
    }
    if (namespace === '+new') return [section, (...all) => showNew(...all, kind, query)];
    return [section, (...all) => showObjects(...all, kind, query)];
  }
  const [key, , view] = SECTIONS.find(([key]) => key === section) ?? SECTIONS[0];
  return [key, (...all) => view(...all, query)];
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const main = element('main');
  const [section, view] = find(route());
  for (const link of element('nav').children) {
    if (link.dataset.section === section) {
      link.setAttribute('aria-current', 'page');
      link.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    } else link.removeAttribute('aria-current');
  }
  shownAt = location.hash;
  release();
  setLive('');
  replace(main);
  try {
    await view(main, signal, setLive);
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) return;
    if (!(error instanceof api.Refused)) console.error(error);
    main.append(refusal(error));
  }
  if (signal.aborted) return;
  const title = main.querySelector('h1');
  document.title = `${title?.textContent ?? 'Status'} · kube-apiserver`;
  window.scrollTo(0, 0);
  if (document.activeElement === document.body) title?.focus();
  announce(document.title);
}

// Asks for a token in place of what is shown.
function signIn(why) {
  leaving.abort();
  release();
  clearTimeout(healthTimer);
  replace(element('nav'));
  element('user').textContent = '';
  element('sign-out').hidden = true;
  const told = h('div', {}, why && note('bad', why));
  const token = h('input', { type: 'password', name: 'token', autocomplete: 'off', spellcheck: 'false', required: true, id: 'token' });
  const submit = (event) => {
    event.preventDefault();
    const value = token.value.trim();
    if (!api.isToken(value)) return replace(told, note('bad', 'A token has letters, digits and punctuation alone.'));
    api.useToken(value);
    return start();
  };
  replace(element('main'), h('div', { class: 'sign-in' }, h('section', { class: 'panel' },
    h('h1', { tabindex: '-1' }, 'Sign in'),
    h('p', { class: 'sub' }, 'This page shows what your user may read, by the API’s own rules.'),
    h('form', { onsubmit: submit },
      told, h('label', { class: 'field', for: 'token' }, 'Bearer token', token),
      h('div', { class: 'actions' }, h('button', { class: 'primary' }, 'Sign in'))),
    h('p', { class: 'sub' }, 'Without a token: run ', h('kbd', {}, 'kubectl proxy'), ' and open /ui/ at its address, or give the browser a client certificate. ',
      'A token comes from ', h('kbd', {}, 'kubectl create token ACCOUNT'), '.'))));
  token.focus();
}

async function whoAmI() {
  const review = await api.post('/apis/authentication.k8s.io/v1/selfsubjectreviews', { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }, { isProbe: true });
  return review.status?.userInfo ?? {};
}

function nameUser(user) {
  element('user').textContent = user.username;
  element('user').title = [user.username, ...(user.groups ?? [])].join('\n');
  element('sign-out').hidden = !api.hasToken();
}

let signingIn = false;
let putOff = false;
// Asks for a token over an edit, whose text stays.
async function signInOver() {
  [signingIn, putOff] = [true, true];
  const told = h('div', {}, note('bad', ENDED));
  const token = h('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', id: 'token', autofocus: true });
  const dialog = h('dialog', { 'aria-labelledby': 'sign-in-title', class: 'sign-in-over' }, h('h2', { id: 'sign-in-title' }, 'Sign in'), told,
    h('form', { method: 'dialog' }, h('label', { class: 'field', for: 'token' }, 'Bearer token', token),
      h('div', { class: 'actions' }, h('button', { value: 'yes', class: 'primary' }, 'Sign in'), h('button', { value: 'no', type: 'submit' }, 'Later'))));
  document.body.append(dialog);
  while (await ask(dialog) === 'yes') {
    const value = token.value.trim();
    token.value = '';
    if (!api.isToken(value)) {
      replace(told, note('bad', 'A token has letters, digits and punctuation alone.'));
      continue;
    }
    const before = api.useToken(value);
    try {
      nameUser(await whoAmI());
      forgetAnswers();
      putOff = false;
      break;
    } catch (error) {
      api.useToken(before);
      replace(told, refusal(error));
    }
  }
  dialog.remove();
  signingIn = false;
}

const ENDED = 'The server does not take these credentials any more.';
function onUnauthorized() {
  if (signingIn || !element('nav').children.length) return;
  if (unsaved()) {
    signInOver();
    return;
  }
  api.useToken('');
  signIn(ENDED);
}

async function start() {
  api.forget();
  forgetAnswers();
  forgetMetrics();
  let user;
  try {
    user = await whoAmI();
  } catch (error) {
    if (api.hasToken() && error.status === 401) {
      api.useToken('');
      return signIn('The server does not take this token.');
    }
    if (error.status === 401 || (error.status === 403 && !api.hasToken())) return signIn();
    if (error.status !== 403) return replace(element('main'), refusal(error), h('button', { onclick: start }, 'Try again'));
    user = { username: 'unknown user' };
  }
  if (user.username === 'system:anonymous') return signIn();
  nameUser(user);
  replace(element('nav'), SECTIONS.map(([key, title]) => h('a', { href: `#/${key}`, 'data-section': key }, title)));
  health();
  return show();
}

let silentSince;
async function health() {
  clearTimeout(healthTimer);
  const shown = element('health');
  if (!document.hidden) {
    let [word, kind] = ['Ready', 'good'];
    try {
      await api.text('/readyz', { accept: 'text/plain', isProbe: putOff });
      silentSince = undefined;
    } catch (error) {
      if (error.status !== 0) silentSince = undefined;
      if (error.status === 0) {
        silentSince ??= new Date();
        [word, kind] = [`Not answering since ${silentSince.toLocaleTimeString('en-GB')}`, 'bad'];
      } else if (error.status === 403 || error.status === 401) [word, kind] = ['', ''];
      else [word, kind] = ['Not ready', 'bad'];
    }
    if (shown.textContent !== word) {
      shown.textContent = word;
      shown.className = `badge ${kind}`;
    }
  }
  healthTimer = setTimeout(health, HEALTH_MILLISECONDS);
}

document.documentElement.dataset.theme = preferredTheme();
element('theme').addEventListener('click', toggleTheme);
element('help').addEventListener('click', showHelp);
element('skip').addEventListener('click', (event) => {
  event.preventDefault();
  element('main').focus();
});
element('sign-out').addEventListener('click', async () => {
  if (!(await mayLeave())) return;
  api.useToken('');
  start();
});
addEventListener('hashchange', async () => {
  if (!element('nav').children.length) return;
  if (!unsaved()) {
    show();
    return;
  }
  // The edit stays, and so does its address, until its user says otherwise.
  const wanted = location.hash;
  history.replaceState(null, '', shownAt || location.pathname);
  if (asking || wanted === shownAt) return;
  asking = true;
  const leave = await mayLeave();
  asking = false;
  if (leave) location.hash = wanted;
});
listenToKeys({ toggleTheme });
api.onUnauthorized(onUnauthorized);
start();
