// One object as YAML: read, edited with the server's own dry run, deleted, created.

import { follow, get, request, text } from './api.js';
import { may } from './access.js';
import { freshId, h, heading, note, refusal, replace } from './dom.js';
import { edit } from './editor.js';
import { address, kindOf, listPath } from './explorer.js';
import { confirm } from './guard.js';
import { isSecretKind, masked } from './secret.js';
import { highlight, metadataField, withoutManagedFields } from './yaml.js';

const YAML = 'application/yaml';
const MANAGER = 'kube-apiserver-ui';
const JSON_TYPE = 'application/json';

const back = (kind) => [h('a', { href: '#/objects' }, 'Objects'), ' / ', h('a', { href: address(kind), 'data-key': 'back' }, kind.kind)];

// The YAML of what a GET gives. A refusal is asked for again as JSON, which is the form that can be read.
async function yamlOf(path, signal) {
  try {
    return await text(path, { accept: YAML, signal });
  } catch (error) {
    if (error.status) await get(path, { signal });
    throw error;
  }
}

// The two requests of an edit. Answers are asked for as JSON, so that refusals can be read; the YAML of a dry run is of a second one.
function writer(method, pathOf, signal) {
  const send = (body, accept, dryRun) => request(pathOf(body), { method, type: YAML, accept, body, signal, query: { fieldManager: MANAGER, fieldValidation: 'Strict', dryRun } });
  return {
    dryRun: async (body) => {
      const response = await send(body, JSON_TYPE, 'All');
      try {
        return { response, after: withoutManagedFields(await (await send(body, YAML, 'All')).text()) };
      } catch (error) {
        if (error.status) await send(body, JSON_TYPE, 'All');
        throw error;
      }
    },
    write: (body) => send(body, JSON_TYPE),
  };
}

// Deleting these deletes much else: their names are to be typed.
const HOLDS_OTHERS = new Map([['/namespaces', 'Everything in this namespace will be deleted with it.'],
  ['apiextensions.k8s.io/customresourcedefinitions', 'All objects of this kind, in all namespaces, will be deleted with it.']]);

async function isDeletionMeant(kind, { namespace, name }) {
  const others = HOLDS_OTHERS.get(`${kind.group}/${kind.resource}`);
  const what = h('p', {}, `The ${kind.kind}${namespace ? ` in namespace ${namespace}` : ''} and what it owns will be deleted. This cannot be undone.`);
  if (!others) return confirm(`Delete ${name}?`, what, 'Keep', 'Delete', { class: 'danger' });
  const typed = h('input', { id: freshId('name'), autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' });
  const check = () => { typed.closest('dialog').querySelector('button[value=yes]').disabled = typed.value !== name; };
  typed.addEventListener('input', check);
  const content = [what, note('warn', others), h('label', { class: 'field', for: typed.id }, `Type ${name} to delete it`, typed)];
  return confirm(`Delete ${name}?`, content, 'Keep', 'Delete', { class: 'danger', disabled: true });
}

export async function showObject(main, signal, setLive, asked) {
  const kind = await kindOf(asked);
  const isSecret = isSecretKind(kind);
  const path = `${listPath(kind, asked.namespace)}/${encodeURIComponent(asked.name)}`;
  const about = { group: kind.group, version: kind.version, resource: kind.resource, namespace: asked.namespace, name: asked.name };
  const allowed = {};
  let [managed, busy, gone, values] = [false, false, false, !isSecret];
  let yaml = await yamlOf(path, signal);
  const place = h('div');
  const banner = h('div');
  const change = h('button', { disabled: true, 'data-key': 'edit', type: 'button' }, 'Edit');
  const remove = h('button', { disabled: true, class: 'danger', type: 'button' }, 'Delete');
  const reveal = isSecret && h('button', { type: 'button', onclick: () => { values = !values; reveal.textContent = values ? 'Hide values' : 'Show values'; if (!busy) draw(); } }, 'Show values');
  const fields = h('input', { type: 'checkbox', id: freshId('managed'), onchange: (event) => { managed = event.target.checked; if (!busy) draw(); } });
  main.append(heading(asked.name, { crumbs: back(kind), sub: asked.namespace ? `in namespace ${asked.namespace}` : `${kind.kind}, cluster-scoped`,
    actions: [h('label', { class: 'check', for: fields.id }, fields, 'Managed fields'), reveal, change, remove] }), banner, place);
  const draw = () => {
    const shown = managed ? yaml : withoutManagedFields(yaml);
    replace(place, h('section', { class: 'panel', 'aria-label': 'YAML' }, h('header', {}, h('h2', {}, 'YAML'), !values && h('p', {}, 'values are hidden')),
      h('pre', { class: 'yaml code', tabindex: '0', role: 'region', 'aria-label': `YAML of ${asked.name}` }, highlight(values ? shown : masked(shown)))));
  };
  const read = async () => {
    yaml = await yamlOf(path, signal);
  };
  const buttons = () => {
    change.disabled = busy || gone || !allowed.update;
    remove.disabled = busy || gone || !allowed.delete;
  };
  const offer = (button, verb, does) => {
    if (!kind.verbs.includes(verb)) {
      button.hidden = true;
      return;
    }
    may(verb, about).then((answer) => {
      allowed[verb] = answer;
      button.title = answer ? '' : `You may not ${does} this object.`;
      buttons();
    });
  };
  offer(change, 'update', 'change');
  offer(remove, 'delete', 'delete');
  const tellGone = () => {
    gone = true;
    buttons();
    replace(banner, note('warn', 'This object has been deleted. What is shown is its last state.'));
  };

  change.addEventListener('click', async () => {
    if (!values && !(await confirm('Show the values?', h('p', {}, 'The editor shows the values of this Secret.'), 'Cancel', 'Edit'))) return;
    if (gone || busy) return;
    busy = true;
    replace(banner);
    buttons();
    // Ends the edit with what is there now.
    const end = async () => {
      try {
        await read();
        if (!gone) replace(banner);
      } catch (error) {
        if (error.status === 404) tellGone();
        else replace(banner, refusal(error));
      }
      if (signal.aborted) return;
      busy = false;
      buttons();
      draw();
      change.focus();
    };
    // A resourceVersion in the text refuses a write over a change of somebody else.
    const now = async () => withoutManagedFields(await yamlOf(path, signal));
    edit({
      place, initial: withoutManagedFields(yaml), before: now, fresh: now, isSecret, ...writer('PUT', () => path, signal),
      done: async (response, warned) => {
        await end();
        replace(banner, note('good', 'Written.'), warned);
      },
      cancel: end,
    });
  });
  remove.addEventListener('click', async () => {
    // The object that was looked at, not another of its name.
    const uid = metadataField(yaml, 'uid');
    if (!(await isDeletionMeant(kind, asked))) return;
    try {
      await request(path, { method: 'DELETE', type: JSON_TYPE, signal,
        body: JSON.stringify({ kind: 'DeleteOptions', apiVersion: 'v1', propagationPolicy: 'Background', preconditions: uid && { uid } }) });
      if (!gone) replace(banner, note('warn', 'Deleted, or being deleted.'));
    } catch (error) {
      replace(banner, refusal(error));
    }
  });
  draw();
  if (!kind.verbs.includes('watch')) return;
  const listAt = listPath(kind, asked.namespace);
  const fieldSelector = `metadata.name=${asked.name}`;
  const watch = async () => {
    const list = await get(listAt, { query: { fieldSelector, limit: 1, pretty: 'false' }, signal });
    follow(listAt, {
      query: { fieldSelector }, from: list.metadata.resourceVersion, signal, state: setLive, gone: watch,
      take: async ({ type }) => {
        if (type === 'DELETED') return tellGone();
        const isNew = gone;
        gone = false;
        buttons();
        if (busy) return replace(banner, note('warn', isNew ? 'The object has been deleted and made anew on the server since it was opened here.' : 'The object has been changed on the server since it was opened here.'));
        if (isNew) replace(banner);
        try {
          await read();
          if (!busy) draw();
        } catch {
          // It went again; the watch says so.
        }
        return undefined;
      },
    });
  };
  await watch().catch(() => {});
}

export async function showNew(main, signal, setLive, asked, query) {
  const kind = await kindOf(asked);
  const place = h('div');
  main.append(heading(`New ${kind.kind}`, { crumbs: back(kind) }), place);
  const namespace = query.get('namespace') || 'default';
  const initial = [`apiVersion: ${kind.group ? `${kind.group}/` : ''}${kind.version}`, `kind: ${kind.kind}`, 'metadata:', '  name: ', ...(kind.namespaced ? [`  namespace: ${namespace}`] : []), ''].join('\n');
  // A namespace that is not found here is the server's to compare with that of the request.
  const pathOf = (body) => listPath(kind, kind.namespaced ? metadataField(body, 'namespace') ?? namespace : '');
  edit({
    place, initial, before: async () => '', isSecret: isSecretKind(kind), ...writer('POST', pathOf, signal),
    done: async (response) => {
      const { metadata } = await response.json();
      location.hash = metadata?.name ? address(kind, metadata.namespace ?? '-', metadata.name) : address(kind);
    },
    cancel: () => { location.hash = address(kind); },
  });
}
