// The frame of the page: who the user is, which section is shown, health, theme.

import * as api from './api.js';
import { forgetAnswers } from './access.js';
import { announce, h, note, refusal, replace } from './dom.js';
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
  live.textContent = { live: 'Live', lost: 'Reconnecting' }[word] ?? '';
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
  return { parts, query: new URLSearchParams(query ?? '') };
}

function find({ parts, query }) {
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
  const [key, , show] = SECTIONS.find(([key]) => key === section) ?? SECTIONS[0];
  return [key, show];
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
    if (error.status === 401) return signIn('The server does not take these credentials.');
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

function signIn(why) {
  leaving.abort();
  replace(element('nav'));
  element('user').textContent = '';
  element('sign-out').hidden = true;
  const token = h('input', { type: 'password', name: 'token', autocomplete: 'off', spellcheck: 'false', required: true, id: 'token' });
  const keep = h('input', { type: 'checkbox', id: 'keep' });
  const submit = (event) => {
    event.preventDefault();
    api.useToken(token.value.trim(), keep.checked);
    start();
  };
  replace(element('main'), h('div', { class: 'sign-in' }, h('section', { class: 'panel' },
    h('h1', { tabindex: '-1' }, 'Sign in'),
    h('p', { class: 'sub' }, 'This page shows what your user may read, by the API’s own rules.'),
    h('form', { onsubmit: submit },
      why && note('bad', why),
      h('label', { class: 'field', for: 'token' }, 'Bearer token', token),
      h('label', { class: 'check', for: 'keep' }, keep, 'Keep it for this tab, until it is closed'),
      h('div', { class: 'actions' }, h('button', { class: 'primary' }, 'Sign in'))),
    h('p', { class: 'sub' }, 'Without a token: run ', h('kbd', {}, 'kubectl proxy'), ' and open /ui/ at its address, or give the browser a client certificate. ',
      'A token comes from ', h('kbd', {}, 'kubectl create token ACCOUNT'), '.'))));
  token.focus();
}

async function whoAmI() {
  const review = await api.post('/apis/authentication.k8s.io/v1/selfsubjectreviews', { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' });
  return review.status?.userInfo ?? {};
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
      api.useToken('', false);
      return signIn('The server does not take this token.');
    }
    if (error.status === 401 || (error.status === 403 && !api.hasToken())) return signIn();
    if (error.status !== 403) return replace(element('main'), refusal(error), h('button', { onclick: start }, 'Try again'));
    user = { username: 'unknown user' };
  }
  if (user.username === 'system:anonymous') return signIn();
  element('user').textContent = user.username;
  element('user').title = [user.username, ...(user.groups ?? [])].join('\n');
  element('sign-out').hidden = !api.hasToken();
  replace(element('nav'), SECTIONS.map(([key, title]) => h('a', { href: `#/${key}`, 'data-section': key }, title)));
  health();
  return show();
}

let healthTimer;
async function health() {
  clearTimeout(healthTimer);
  const shown = element('health');
  if (!document.hidden) {
    let [word, kind] = ['Ready', 'good'];
    try {
      await api.text('/readyz', { accept: 'text/plain' });
    } catch (error) {
      if (error.status === 0) [word, kind] = ['Unreachable', 'bad'];
      else if (error.status === 403 || error.status === 401) [word, kind] = ['', ''];
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
start();
